"""Drafts of another vocabulary: the target with its tokens renumbered drafts as well as the target itself."""

from __future__ import annotations

import copy

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from specdec.drafts.run.vocabulary import VocabularyError
from specdec.speculators.draft_model import DraftModelSpeculator

CPU, SIZE = torch.device("cpu"), 60
WORDS = ["<end>", "<unk>", *(f"▁w{i}" for i in range(SIZE - 2))]


def tokenizer_of(words: list[str]) -> PreTrainedTokenizerFast:
    table = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=table, eos_token="<end>", unk_token="<unk>")


@pytest.fixture
def renumbered(tiny_llama, tmp_path):
    """The target's model with other ids for its tokens, and five tokens that only the draft has."""

    def save(known: int = SIZE) -> str:
        model = copy.deepcopy(tiny_llama(0)[0])
        order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(3))
        model.resize_token_embeddings(SIZE + 5)
        for table in (model.model.embed_tokens, model.lm_head):
            rows = table.weight.data[:SIZE].clone()
            table.weight.data[:SIZE] = rows[order]
        # tokens of the draft alone score highest, so that they would be drafted if nothing prevented it
        model.lm_head.weight.data[SIZE:] = 50.0
        words = [WORDS[i] if i < known else f"only{i}" for i in order.tolist()]
        model.save_pretrained(tmp_path)
        tokenizer_of([*words, *(f"extra{i}" for i in range(5))]).save_pretrained(tmp_path)
        return str(tmp_path)

    return save


@pytest.fixture
def build(make_config, tiny_llama, target_handle):
    def make(path: str, tokenizer, **options) -> DraftModelSpeculator:
        config = make_config(3, {"use_heterogeneous_vocab": True, **options}, draft={"model": path})
        speculator = DraftModelSpeculator(config, CPU)
        speculator.load(target_handle(tiny_llama(0)[0], tokenizer=tokenizer))
        return speculator

    return make


def test_a_renumbered_target_is_always_right(build, renumbered, tiny_llama, greedy_of, run_greedy) -> None:
    speculator = build(renumbered(), tokenizer_of(WORDS))
    next_token = greedy_of(tiny_llama(0)[0])
    for request in run_greedy(speculator, next_token, [[5, 6, 7], [8] * 12], max_tokens=21):
        assert all(len(d) == a for d, a in request.rounds)
        assert len(request.rounds) <= 7


def test_tokens_the_draft_lacks_cost_acceptance_only(build, renumbered, tiny_llama, greedy_of, run_greedy) -> None:
    speculator = build(renumbered(known=30), tokenizer_of(WORDS), draft_sample_method="probabilistic")
    next_token = greedy_of(tiny_llama(0)[0])
    (request,) = run_greedy(speculator, next_token, [[5, 45, 7]], max_tokens=25)
    plain = [5, 45, 7]
    for _ in range(25):
        plain.append(next_token(plain))
    assert request.tokens == plain
    drafted = [t for d, _ in request.rounds for t in d]
    assert drafted and max(drafted) < 30


def test_without_a_tokenizer_it_says_so(build, renumbered) -> None:
    with pytest.raises(VocabularyError, match="the target has no tokenizer"):
        build(renumbered(), None)
