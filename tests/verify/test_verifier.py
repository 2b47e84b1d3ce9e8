from __future__ import annotations

import math

import pytest
import torch

from specdec.verify import MODES, DenseDraftLogits, TopKDraftLogits, Verifier, draw_drafts, verify
from specdec.verify.row_law import RowLaw, draw_inverse_cdf
from specdec.verify.row_tops import row_tops

V = 601


def logits(rows, seed=0, scale=2.0):
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)) * scale


def run(mode, x, drafts, temperature, seeds=None, positions=None, **kw):
    count = len(drafts)
    options = {"rates": [0.5] * 8} if mode == "synthetic" else {}
    verifier = Verifier(mode, draw=kw.pop("draw", "inverse_cdf"), **options)
    return verifier(
        x, torch.as_tensor(drafts).view(count, -1), temperature=temperature, seeds=seeds or list(range(count)),
        positions=positions or [7] * count, **kw,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_greedy_accepts_the_argmax_prefix(dtype):
    x = logits(5).to(dtype)
    best = x.float().argmax(-1).tolist()
    drafts = [*best[:2], (best[2] + 1) % V, best[3]]
    for mode in set(MODES) - {"synthetic"}:
        out = run(mode, x, [drafts], [0.0])
        assert out.token_ids.tolist() == [[*best[:3], -1, -1]]
        assert out.num_sampled.tolist() == [3]


def test_greedy_ties_go_to_the_lowest_id():
    x = torch.zeros(2, V)
    x[0, [300, 17, 550]] = 4.0
    x[1, 599] = x[1, 2] = 1.0
    assert run("standard", x, [[17]], [0.0]).token_ids.tolist() == [[17, 2]]
    assert run("standard", x, [[300]], [0.0]).token_ids.tolist() == [[17, -1]]


def test_no_drafts_is_plain_sampling_and_temperature_zero_argmax():
    x = logits(2)
    out = run("standard", x, [[], []], [0.0, 0.9])
    assert out.token_ids.shape == (2, 1) and out.num_sampled.tolist() == [1, 1]
    assert out.token_ids[0, 0] == x[0].argmax()
    assert out.token_ids[1, 0] == RowLaw(x[1], 0.9).draw(_target_uniform(1, 7))


@pytest.mark.parametrize("draw", ["inverse_cdf", "gumbel"])
@pytest.mark.parametrize("mode", MODES)
def test_rows_without_drafts_are_what_the_rules_emit_for_them(mode, draw):
    x = logits(6)
    x[3, :] = -math.inf
    x[4, 5] = math.nan
    temperature, options = [0.0, 0.7, 1.5, 0.7, 0.0, 0.7], {"rates": [0.5]} if mode == "synthetic" else {}
    settings = {"temperature": temperature, "seeds": list(range(6)), "positions": [3, 9, 4, 4, 4, 4]}
    verifier = Verifier(mode, draw=draw, **options)
    short, by_rule = verifier(x, [[]] * 6, **settings), verifier(x, torch.empty((6, 0), dtype=torch.int64), **settings)
    for name in ("token_ids", "num_sampled", "invalid"):
        assert getattr(short, name).tolist() == getattr(by_rule, name).tolist()
    assert short.invalid.tolist() == [False, False, False, True, False, False]
    with pytest.raises(ValueError, match="target rows"):
        verifier(x, [[]] * 5, **{key: values[:5] for key, values in settings.items()})


def _target_uniform(seed, position):
    from specdec_kernels.philox.words import uniform

    return uniform(seed, position, 0, 4)


@pytest.mark.parametrize("draw", ["inverse_cdf", "gumbel"])
@pytest.mark.parametrize("mode", ["standard", "block", "coupled", "synthetic", "fly"])
def test_output_does_not_depend_on_batch_order_padding_or_strides(mode, draw):
    counts, k = [3, 0, 2, 1], 4
    x = logits(sum(counts) + 4, scale=1.0)
    starts = [0, 4, 5, 8]
    q = torch.full((4, k, V), float("nan"))
    drafts = torch.full((4, k), -1)
    for r, n in enumerate(counts):
        for i in range(n):
            q[r, i] = x[starts[r] + i] + 0.3 * torch.randn(V, generator=torch.Generator().manual_seed(r * 9 + i))
            drafts[r, i] = q[r, i].argmax() if i else q[r, i].topk(2).indices[1]
    temperature, seeds, positions = [0.8, 1.0, 0.7, 0.0], [5, 6, 7, 8], [3, 30, 300, 3000]
    kw = {"draw": draw}
    together = run(mode, x, drafts, temperature, seeds, positions, num_drafts=counts, draft_laws=q, **kw)
    wide = torch.empty(len(x), V + 3)[:, :V].copy_(x)
    order = [2, 0, 3, 1]
    rows = torch.cat([torch.arange(starts[r], starts[r] + counts[r] + 1) for r in order])
    pick = lambda values: [values[r] for r in order]  # noqa: E731
    shuffled = run(
        mode, wide[rows], drafts[order], pick(temperature), pick(seeds), pick(positions), num_drafts=pick(counts),
        draft_laws=q[order], **kw,
    )  # fmt: skip
    assert torch.equal(shuffled.token_ids, together.token_ids[order])
    for r, n in enumerate(counts):
        alone = run(
            mode, x[starts[r] : starts[r] + n + 1], drafts[r : r + 1, :n], temperature[r : r + 1], seeds[r : r + 1],
            positions[r : r + 1], draft_laws=q[r : r + 1, :n] if n else None, **kw,
        )  # fmt: skip
        m = int(alone.num_sampled)
        assert alone.token_ids[0, :m].tolist() == together.token_ids[r, :m].tolist()
        assert m == together.num_sampled[r] and (together.token_ids[r, m:] == -1).all()


def test_a_placeholder_ends_the_drafts():
    x = torch.full((4, V), -10.0)
    x[:, 5] = 30.0
    out = run("standard", x, [[5, -1, 5]], [1.0])
    assert out.token_ids.tolist() == [[5, 5, -1, -1]]
    out = run("block", x, [[5, -1, 5]], [1.0], draft_laws=x[None, :3])
    assert out.token_ids.tolist() == [[5, 5, -1, -1]]


def test_counts_are_taken_from_placeholders_when_rows_are_ragged():
    x = logits(3)
    assert run("standard", x, [[1, 2, -1, -1]], [0.0]).token_ids.shape == (1, 5)


def test_masked_and_broken_rows():
    x = logits(3, scale=1.0)
    x[0] = -torch.inf
    x[1, 3:] = -torch.inf
    x[1, 0] = float("nan")
    x[2, 9] = torch.inf
    for draw in ("inverse_cdf", "gumbel"):
        out = run("standard", x, [[], [], []], [1.0, 1.0, 1.0], draw=draw)
        assert out.invalid.tolist() == [True, False, False]
        assert out.token_ids[0, 0] == 0 and out.token_ids[1, 0] in (1, 2) and out.token_ids[2, 0] == 9
    assert run("standard", x, [[], [], []], [0.0] * 3).invalid.tolist() == [True, False, False]


def test_forbidden_and_foreign_drafts_are_never_accepted():
    x = logits(2, scale=0.1)
    x[0, 4] = -torch.inf
    for mode in ("standard", "block", "coupled"):
        for seed in range(30):
            for bad in (4, V, V + 50):
                out = run(mode, x, [[bad]], [1.0], [seed])
                assert out.num_sampled.tolist() == [1] and 0 <= out.token_ids[0, 0] < V and out.token_ids[0, 0] != 4


def test_identical_laws_accept_everything():
    x = logits(4, scale=1.0)
    for mode in ("standard", "block"):
        for seed in range(20):
            drawn = [
                int(draw_drafts(x[i : i + 1], temperature=[0.7], seeds=[seed], starts=[7], step=i).token_ids)
                for i in range(3)
            ]
            out = run(mode, x, [drawn], [0.7], [seed], draft_laws=x[None, :3])
            assert out.token_ids[0, :3].tolist() == drawn and out.num_sampled.tolist() == [4]


def test_vocabularies_of_different_size():
    x = logits(2, scale=0.5)
    for size in (V - 100, V + 100):
        q = torch.randn(1, 1, size)
        for seed in range(20):
            drawn = draw_drafts(q[0], temperature=[1.0], seeds=[seed], starts=[7], step=0)
            out = run("standard", x, [[int(drawn.token_ids)]], [1.0], [seed], draft_laws=q)
            assert 0 <= out.token_ids[0, 0] < V


def test_candidate_laws_equal_their_dense_form():
    x = logits(3, scale=1.0)
    ids = torch.stack([row.topk(5).indices for row in x[:2]])[None]
    ids[0, 1, 4] = -1
    sparse = TopKDraftLogits(ids, torch.randn(1, 2, 5), V)
    for seed in range(20):
        for mode in ("standard", "block"):
            args = (x, [[int(ids[0, 0, 1]), int(ids[0, 1, 0])]], [1.0], [seed])
            a, b = run(mode, *args, draft_laws=sparse), run(mode, *args, draft_laws=sparse.dense())
            assert torch.equal(a.token_ids, b.token_ids)
    assert torch.isinf(sparse.dense().logits).sum() == 2 * V - 9


def test_kept_draft_probabilities_change_nothing():
    x, q = logits(3, scale=1.0), logits(2, 5, scale=1.0)
    for seed in range(20):
        drawn = [draw_drafts(q[i : i + 1], temperature=[0.9], seeds=[seed], starts=[7], step=i) for i in range(2)]
        ids = [[int(d.token_ids) for d in drawn]]
        kept = DenseDraftLogits(q[None], torch.stack([d.probs for d in drawn], 1))
        a, b = (
            run("standard", x, ids, [0.9], [seed], draft_laws=q[None]),
            run("standard", x, ids, [0.9], [seed], draft_laws=kept),
        )
        assert torch.equal(a.token_ids, b.token_ids)


@pytest.mark.parametrize("draw", ["inverse_cdf", "gumbel"])
def test_coupled_output_is_the_plain_output_for_any_drafter_and_k(draw):
    table = {}

    def target(prefix):  # a toy model: logits depend on the last two tokens
        key = prefix[-2:]
        if key not in table:
            table[key] = torch.randn(V, generator=torch.Generator().manual_seed(hash(key) % 10_007)) * 3
        return table[key]

    def decode(k, drafter):
        tokens, accepted = (1, 2), 0
        while len(tokens) < 30:
            drafts = drafter(tokens, k)
            x = torch.stack([target((*tokens, *drafts[:i])) for i in range(len(drafts) + 1)])
            out = run("coupled", x, [drafts], [0.8], [42], [len(tokens)], draw=draw)
            n = int(out.num_sampled)
            accepted += n - 1
            tokens += tuple(out.token_ids[0, :n].tolist())
        return tokens[:30], accepted

    plain, _ = decode(0, lambda tokens, k: [])
    wrong, _ = decode(3, lambda tokens, k: [(tokens[-1] + i) % V for i in range(k)])
    guess, hits = decode(4, lambda tokens, k: list(plain[len(tokens) : len(tokens) + k]))
    assert plain == wrong == guess and hits > 20

    def shared(tokens, k):  # a sampled drafter that uses the target's own noise, on a perturbed model
        drafts = []
        for i in range(k):
            q = target((*tokens, *drafts)) + 0.2 * torch.randn(V, generator=torch.Generator().manual_seed(i))
            kw = {"temperature": [0.8], "seeds": [42], "starts": [len(tokens)], "step": i}
            drafts.append(int(draw_drafts(q[None], coupled=True, gumbel=draw == "gumbel", **kw).token_ids))
        return drafts

    sampled, hits = decode(3, shared)
    assert sampled == plain
    if draw == "gumbel":
        assert hits > 8


def test_synthetic_rates_hold_at_any_temperature():
    x = logits(4, scale=1.0)
    for temperature in (0.0, 1.0):
        lengths = [
            int(Verifier("synthetic", length=2.5, k=3)(
                x, torch.tensor([[1, 2, 3]]), temperature=[temperature], seeds=[seed], positions=[0]
            ).num_sampled)
            for seed in range(400)
        ]  # fmt: skip
        assert set(lengths) == {2, 3}
        assert abs(sum(lengths) / 400 - 2.5) < 0.15


def test_fly_forgives_where_the_target_is_unsure():
    x = torch.full((4, V), -20.0)
    x[0, [1, 2, 3]] = 0.0  # unsure
    x[1:, 7] = 20.0
    lossless = [int(run("standard", x, [[1, 7, 7]], [1.0], [s]).num_sampled) for s in range(60)]
    loose = [int(run("fly", x, [[1, 7, 7]], [1.0], [s]).num_sampled) for s in range(60)]
    assert set(loose) == {4} and 1 in lossless
    x[0, 2] = 9.0  # now sure of another token
    assert 1 in [int(run("fly", x, [[1, 7, 7]], [1.0], [s]).num_sampled) for s in range(20)]


def test_tiny_temperature_and_large_logits():
    x = logits(1) * 1e4
    assert int(run("standard", x, [[]], [1e-6]).token_ids) == int(x[0].argmax())
    assert math.isclose(RowLaw(torch.zeros(V), 1e-30).prob(3), 1 / V, rel_tol=1e-5)


def test_inverse_cdf_never_returns_a_token_without_mass():
    weights = torch.zeros(V)
    weights[[0, 255, 256, 600]] = 1.0
    picks = [draw_inverse_cdf(weights, u) for u in (1e-17, 0.2499, 0.2501, 0.5001, 0.7501, 1 - 1e-16)]
    assert picks == [0, 0, 255, 256, 600, 600]
    assert draw_inverse_cdf(torch.zeros(5), 0.5) == -1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Verifier("strict"), "unknown verification mode 'strict'; choose one of standard"),
        (lambda: Verifier("standard", draw="cdf"), "choose inverse_cdf or gumbel"),
        (lambda: Verifier("standard", window=3), "does not take these options: window"),
        (lambda: Verifier("synthetic"), "exactly one of rates and length"),
        (lambda: Verifier("synthetic", rates=[0.5, 0.6]), "not increase"),
        (lambda: Verifier("synthetic", length=9.0, k=3), r"outside \[1, 4\]"),
        (lambda: Verifier("fly", window=0), "at least 1"),
        (lambda: Verifier("standard", backend="cuda")(logits(1), torch.zeros(1, 0).long(), temperature=[0], seeds=[0],
                                                      positions=[0]), "unknown backend 'cuda'"),
        (lambda: Verifier("standard", backend="triton")(logits(1), torch.zeros(1, 0).long(), temperature=[0],
                                                        seeds=[0], positions=[0]), "needs CUDA tensors"),
        (lambda: run("standard", logits(3), [[1], [2]], [0.0, 0.0]), "3 target rows for 2 requests"),
        (lambda: verify(logits(2), torch.zeros(1, 1).long(), temperature=[0.0, 1.0], seeds=[1], positions=[1]),
         "temperature has 2 values for 1 requests"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("size", [1, 5, 255, 256, 257, 700, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_tops_are_the_first_maxima(size, dtype):
    generator = torch.Generator().manual_seed(size)
    x = torch.randint(-3, 3, (9, size + 1), generator=generator).to(dtype)[:, :size]  # many ties
    maxima, best = row_tops(x)
    assert maxima == x.amax(-1).tolist()
    assert best == [row.index(max(row)) for row in x.tolist()]


def test_bounded_noise_shortcut_is_the_full_gumbel_argmax():
    from specdec_kernels.philox import reference

    for seed, scale in enumerate((0.5, 3.0, 12.0)):
        x = torch.randn(20_001, generator=torch.Generator().manual_seed(seed)) * scale
        noise = reference.gumbel(torch.tensor([seed]), torch.tensor([3]), torch.tensor([0]), 4, len(x))[0]
        want = int(((x - x.max()) / 0.9 + noise).argmax())
        assert RowLaw(x, 0.9).draw_gumbel((seed, 3, 0, 4)) == want
