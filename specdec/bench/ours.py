"""The embedded engine as benchmark modes: plain, and one per speculative configuration."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from specdec.bench.samples import Sample
from specdec.config.final.speculative_config import SpeculativeConfig


class EngineMode:
    """Requests through ``specdec.LLM``, one at a time or several together."""

    peer = False

    def __init__(self, name: str, llm: Any, num_drafts: int | None) -> None:
        self.name, self.llm, self.num_drafts = name, llm, num_drafts

    def generate(self, token_ids: Sequence[int], temperature: float, seed: int, max_tokens: int) -> Sample:
        before = dict(self.llm.engine.metrics.seconds)
        start = time.perf_counter()
        output = self._run([token_ids], temperature, seed, max_tokens)[0]
        seconds = time.perf_counter() - start
        spent = {k: v - before.get(k, 0.0) for k, v in self.llm.engine.metrics.seconds.items()}
        completion = output.outputs[0]
        counts = completion.speculation
        drafting = spent.get("draft", 0.0)
        inside = spent.get("prefill", 0.0) + spent.get("verify", 0.0)
        return Sample(
            token_ids=list(completion.token_ids),
            seconds=seconds,
            forwards=counts.steps,
            drafted_per_position=list(counts.drafted_per_position),
            accepted_per_position=list(counts.accepted_per_position),
            overhead=(seconds - inside - drafting) / seconds,
            drafting=drafting / seconds,
            first_token_seconds=completion.metrics.seconds_to_first_token,
        )

    def generate_together(
        self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, max_tokens: int
    ) -> tuple[int, float]:
        """(tokens, seconds) of all prompts in one batch."""
        start = time.perf_counter()
        outputs = self._run(prompts, temperature, seed, max_tokens)
        return sum(len(o.outputs[0].token_ids) for o in outputs), time.perf_counter() - start

    def _run(self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, max_tokens: int) -> list[Any]:
        from specdec.engine.sampling.sampling_params import SamplingParams
        from specdec.errors import EngineError

        params = [
            SamplingParams(temperature=temperature, seed=seed + i, max_tokens=max_tokens, ignore_eos=True)
            for i in range(len(prompts))
        ]
        outputs = self.llm.generate([{"prompt_token_ids": list(p)} for p in prompts], params)
        for output in outputs:
            if output.error is not None:
                raise EngineError(f"{self.name}: {output.error}")
        return list(outputs)


def engine_modes(configs: Sequence[tuple[str, SpeculativeConfig]], plain_name: str = "plain") -> list[EngineMode]:
    """Plain decoding, then one mode per (label, configuration); they share the target's weights.

    A speculator that reads hidden states hooks into the target, so it gets a target of its own.
    """
    from specdec.engine.llm import LLM

    first = configs[0][1]
    settings = {n: first.engine.get(n) for n in ("max_num_seqs", "max_num_batched_tokens", "seed", "device")}
    plain = LLM(
        first.target["model"],
        dtype=first.target.get("dtype"),
        max_model_len=first.engine.get("max_model_len") or first.target.get("max_model_len"),
        **settings,
    )
    modes = [EngineMode(plain_name, plain, None)]
    for label, config in configs:
        can = config.capabilities
        if can.get("uses_target_hidden_states") or can.get("uses_aux_hidden_states"):
            llm = LLM(speculative_config=config)
        else:
            llm = LLM(plain.target.model, config, tokenizer=plain.tokenizer)
        modes.append(EngineMode(label, llm, config.num_speculative_tokens))
    return modes
