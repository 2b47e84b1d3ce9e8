"""``specdec tune``: which num_speculative_tokens pays, from acceptance and costs that are given or measured."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

from specdec.cli.common import OVERRIDE_HELP, exit_code, print_findings, split_arguments

HELP = "recommend num_speculative_tokens from measured acceptance and costs"
DESCRIPTION = """Run prompts with the configured speculator at the largest k and once plainly, one at a time, and work out for every
k how many tokens a step is expected to give and at what speed. With --acceptance nothing is loaded: the rates and costs
are taken as given. Without FILE the packaged default is used."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec tune run.yaml --prompts questions.jsonl
  specdec tune run.yaml --max-k 12 --prompt "Repeat this list: a, b, c"
  specdec tune --acceptance 0.844,0.599,0.41 --draft-cost-ratio 0.15

exit codes: 0 fine, 1 the configuration or a value has errors, 2 something could not be read"""


@dataclass(frozen=True)
class Measured:
    """What advice needs; costs in units of one plain decoding step."""

    acceptance: list[float]  # share of drafting rounds in which position i was accepted with all before it
    draft_cost: float  # per drafted token
    verify_cost: float  # per further row that the target verifies
    plain_speed: float | None = None  # tokens/s of plain decoding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="*", metavar="FILE|KEY=VALUE", help="configuration file, and overrides")
    parser.add_argument("--prompt", action="append", default=[], help="a prompt; may be given several times")
    parser.add_argument("--prompts", metavar="FILE", help="JSON lines, as for 'specdec generate'")
    parser.add_argument("--raw", action="store_true", help="do not use the tokenizer's chat template")
    parser.add_argument("--max-k", type=int, metavar="K", help="largest k to consider (default: the configuration's)")
    parser.add_argument("--acceptance", metavar="RATES", help="unconditional rates per position, such as 0.8,0.6,0.4")
    parser.add_argument("--draft-cost-ratio", type=float, metavar="R", help="a drafted token in plain steps")
    parser.add_argument("--verify-cost-ratio", type=float, metavar="R", help="a further verified row in plain steps")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.max_k is not None and args.max_k < 1:
        return fail(f"--max-k is {args.max_k}; allowed: at least 1", 1)
    if args.acceptance is None:
        return tune(args)
    if args.items or args.prompt or args.prompts:
        return fail("--acceptance works without a model; leave out the configuration and the prompts", 1)
    if args.draft_cost_ratio is None:
        return fail("--acceptance needs --draft-cost-ratio, the time of a drafted token over that of a plain step", 1)
    try:
        rates = [float(rate) for rate in args.acceptance.split(",")]
    except ValueError:
        return fail(f"--acceptance is {args.acceptance!r}; write rates between commas, such as 0.8,0.6,0.4", 1)
    return report(args, Measured(rates[: args.max_k], args.draft_cost_ratio, args.verify_cost_ratio or 0.0))


def tune(args: argparse.Namespace) -> int:
    """Resolve, load, measure and report."""
    from specdec.cli.generate import refusals
    from specdec.cli.prompts import PromptFileError, read_prompts
    from specdec.cli.resolving import resolve_all

    files, overrides = split_arguments(args.items)
    if len(files) > 1:
        return fail(f"one file at a time, got {', '.join(files)}", 2)
    if args.max_k is not None:
        overrides = [*overrides, f"speculative.num_speculative_tokens={args.max_k}"]
    _, resolution = next(iter(resolve_all(files[0] if files else None, overrides)))
    findings = [d for d in resolution.diagnostics if d.severity != "note"]
    refused = refusals(resolution.config) if resolution.config is not None else []
    print_findings([*findings, *refused], stream=sys.stderr)
    if resolution.config is None or refused:
        return exit_code([*findings, *refused])
    try:
        prompts = read_prompts(args.prompt, args.prompts, sys.stdin)
    except PromptFileError as error:
        return fail(str(error), 2)
    from specdec.engine.sampling.sampling_params import SamplingParamsError
    from specdec.errors import EngineError

    try:
        measured = measure(resolution.config, prompts, chat=not args.raw)
    except (EngineError, SamplingParamsError) as error:
        return fail(str(error), 1)
    if not measured.acceptance:
        return fail(
            "nothing was drafted on these prompts; use longer outputs (sampling.max_tokens) or other prompts", 1
        )
    return report(args, measured)


def measure(config: Any, prompts: list[Any], chat: bool) -> Measured:
    """Acceptance and costs over all prompts, one request at a time; a plain and a drafting run of each."""
    from specdec.cli.generation import sampling_params
    from specdec.engine.llm import LLM
    from specdec.errors import EngineError

    llm = LLM(speculative_config=config, adaptive_drafting=False)
    drafting = sampling_params(config).replace(n=1, num_speculative_tokens=None)
    use_chat = chat and bool(getattr(llm.tokenizer, "chat_template", None))
    seconds, counts = {}, {}
    # the first run warms up: its times are thrown away
    for name, prompts_of_run, params in (
        ("warm", prompts[:1], drafting),
        ("plain", prompts, drafting.replace(num_speculative_tokens=0)),
        ("drafting", prompts, drafting),
    ):
        before = dict(llm.engine.metrics.seconds)
        pooled = []
        for number, prompt in enumerate(prompts_of_run, 1):
            print(f"\r{name} {number}/{len(prompts_of_run)} ", end="", file=sys.stderr, flush=True)
            output = llm.generate([prompt], params, use_chat=use_chat)[0]
            if output.error is not None:
                raise EngineError(output.error)
            pooled.append(output.outputs[0].speculation)
        seconds[name] = {phase: spent - before.get(phase, 0.0) for phase, spent in llm.engine.metrics.seconds.items()}
        counts[name] = pooled
    print("\r" + " " * 24 + "\r", end="", file=sys.stderr)
    plain_steps = sum(c.steps - 1 for c in counts["plain"])  # the first step of a request is its prompt
    rounds = sum(c.steps - 1 for c in counts["drafting"])
    drafted = sum(c.drafted for c in counts["drafting"])
    drafting_rounds = sum(c.steps_with_drafts for c in counts["drafting"])
    plain_step = seconds["plain"].get("verify", 0.0) / plain_steps if plain_steps else 0.0
    if not drafted or not plain_step:
        return Measured([], 0.0, 0.0)
    accepted = [0] * max(len(c.drafted_per_position) for c in counts["drafting"])
    for c in counts["drafting"]:
        for i, value in enumerate(c.accepted_per_position):
            accepted[i] += value
    extra = seconds["drafting"].get("verify", 0.0) - rounds * plain_step
    return Measured(
        [value / drafting_rounds for value in accepted],
        seconds["drafting"].get("draft", 0.0) / drafted / plain_step,
        max(0.0, extra) / drafted / plain_step,
        1.0 / plain_step,
    )


def report(args: argparse.Namespace, measured: Measured) -> int:
    """Print what each k is expected to give, and the best."""
    from specdec.verify.advice import advise_k

    costs = {"draft_cost_ratio": measured.draft_cost, "verify_cost_ratio": measured.verify_cost}
    for name in costs:  # a given cost replaces the measured one
        given = getattr(args, name)
        costs[name] = costs[name] if given is None else given
    try:
        advice = advise_k(measured.acceptance, **costs)
    except ValueError as error:
        return fail(str(error), 1)
    speed = measured.plain_speed
    if args.json:
        choices = [
            {**vars(c), "tokens_per_second": None if speed is None else c.speedup * speed} for c in advice.choices
        ]
        print(json.dumps({"best_k": advice.best_k, "acceptance": measured.acceptance, **costs, "choices": choices}))
        return 0
    print(
        f"costs in plain steps: {costs['draft_cost_ratio']:.3f} a draft, {costs['verify_cost_ratio']:.3f} a verified row"
    )
    print(f"{'k':>3} {'accepted':>9} {'tokens/step':>12} {'cost':>6} {'speed-up':>9}" + (" tokens/s" if speed else ""))
    for c in advice.choices:
        rate = f"{measured.acceptance[c.k - 1]:.3f}" if c.k else "-"
        line = f"{c.k:>3} {rate:>9} {c.tokens_per_round:>12.2f} {c.cost_per_round:>6.2f} {c.speedup:>8.2f}x"
        line += f" {c.speedup * speed:>8.1f}" if speed else ""
        print(line + ("  best" if c.k == advice.best_k else ""))
    if advice.best_k:
        print(f"recommended: speculative.num_speculative_tokens={advice.best_k}")
    else:
        print("recommended: no speculation; no k is faster than plain decoding here")
    return 0


def fail(message: str, code: int) -> int:
    """Print an error; returns its exit code."""
    print(f"specdec tune: error: {message}", file=sys.stderr)
    return code
