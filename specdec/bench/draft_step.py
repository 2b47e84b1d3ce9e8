"""Time rounds of draft networks as shares of a plain step of the target: ``python -m specdec.bench.draft_step``."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from specdec.bench.forward import forward_of
from specdec.drafts.layers import DecoderLayer, LayerFacts, RMSNorm, Rotary
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.native.stack import NativeDraft
from specdec.model.accelerate import accelerate, native_stack
from specdec.model.kv_cache import SlotCache
from specdec.model.target import Target, load_target


def random_draft(target: Target, head_rows: int, capacity: int, block: bool) -> NativeDraft:
    """A draft of one layer of the target's shape with random weights: EAGLE-3, or a block over injected context."""
    c = target.model.config.get_text_config(decoder=True)
    hidden, heads = c.hidden_size, c.num_attention_heads
    head_dim = getattr(c, "head_dim", None) or hidden // heads
    width = hidden if block else 2 * hidden
    facts = LayerFacts(hidden, width, c.intermediate_size, heads, c.num_key_value_heads, head_dim, 1e-5)
    rotary = Rotary({"hidden_size": hidden, "num_attention_heads": heads, "head_dim": head_dim, "rope_theta": 1e5})
    layer, norms = DecoderLayer(facts, 0), [RMSNorm(hidden, 1e-5) for _ in range(3)]
    fc, head = nn.Linear(3 * hidden, hidden, bias=False), nn.Linear(hidden, head_rows, bias=False)
    for module in (layer, *norms, fc, head):
        module.to(target.dtype).requires_grad_(False)
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.02)
    embed = target.model.get_input_embeddings()
    if block:
        parts = DraftParts(embed, [layer], rotary, norms[0], head, fc, both_ways=[True], context_norm=norms[1])
    else:
        parts = DraftParts(embed, [layer], rotary, *(norms[0], head, fc), embed_norm=norms[1], feature_norm=norms[2],
                           beside=True)  # fmt: skip
    return NativeDraft(parts, torch.arange(head_rows), SlotCache(1, 1, capacity))


def rounds(target: Target, head_rows: int, cached: int) -> dict[str, Callable[[], None]]:
    """What is timed: a plain step, one draft step, a round of three with the pairs before it, a block of six rows."""
    capacity = cached + 32
    step = forward_of(target, capacity)
    eagle, block = (random_draft(target, head_rows, capacity, b) for b in (False, True))
    hidden = target.model.config.get_text_config(decoder=True).hidden_size
    states = torch.randn(cached + 8, 3 * hidden).to(target.dtype)
    feature = torch.randn(1, hidden).to(target.dtype)
    tokens = [17 * i % target.vocab_size for i in range(cached + 8)]
    step(1, cached)
    eagle.chain([0], [0], [tokens[:cached]], [states[:cached]], [0])
    block.write_context([0], [0], [states[:cached]])

    def block_pass(context: int) -> None:
        if context:
            block.write_context([0], [cached], [states[:context]])
        block.block([0], [cached + context], [tokens[:6]], [states[:0]], [6])

    return {
        "plain step": lambda: step(1, cached),
        "draft step": lambda: _discard(eagle.block([0], [cached], [tokens[:1]], [feature], [1], projected=True)),
        "draft step, logits written": lambda: _discard(
            eagle.logits([0], [cached], [tokens[:1]], [feature], projected=True)
        ),
        "round of 3 after 1 token": lambda: _discard(eagle.chain([0], [cached], [tokens[:1]], [states[:1]], [3])),
        "round of 3 after 2 tokens": lambda: _discard(eagle.chain([0], [cached], [tokens[:2]], [states[:2]], [3])),
        "round of 3 after 4 tokens": lambda: _discard(eagle.chain([0], [cached], [tokens[:4]], [states[:4]], [3])),
        "block of 6": lambda: block_pass(0),
        "block of 6 after 2 tokens": lambda: block_pass(2),
    }


def _discard(_: object) -> None:
    return None


def shares(
    runs: dict[str, Callable[[], None]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, tuple[float, float]]:
    """Per name the median milliseconds, and the median share of the plain steps right before and after."""
    names = list(runs)
    plain = runs[names[0]]

    def timed(run: Callable[[], None]) -> float:
        start = clock()
        run()
        return 1e3 * (clock() - start)

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            plain()
            # the step before has streamed the target's weights through the caches, as in a real round
            own, after = timed(runs[name]), timed(plain)
            found[name].append((own, own / after))
    return {
        name: (statistics.median(t for t, _ in rows), statistics.median(s for _, s in rows))
        for name, rows in found.items()
    }


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--head-rows", type=int, default=8192)
    parser.add_argument("--cached", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--cpu-time", action="store_true", help="of this process: for one thread on a busy machine")
    args = parser.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    target = load_target(args.model, dtype=args.dtype, device="cpu")
    accelerate(target.model)
    kind = "one call" if native_stack(target) is not None else "layer by layer"
    runs = rounds(target, args.head_rows, args.cached)
    shares(runs, 3)
    print(
        f"{args.dtype}, {torch.get_num_threads()} threads, {args.cached} cached tokens, {args.head_rows} head rows, {kind}"
    )
    for name, (milliseconds, share) in shares(runs, args.repeats, clock).items():
        print(f"{name:28s} {milliseconds:8.2f} ms {share:8.1%} of a plain step")


if __name__ == "__main__":
    main()
