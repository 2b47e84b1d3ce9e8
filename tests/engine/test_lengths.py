"""Which drafts of a batch are verified, under made-up costs."""

from __future__ import annotations

import pytest

from specdec.engine.policy.lengths import above_threshold, admit, choose_budget, choose_lengths, rows_of


class Table:
    """Seconds by rows, made up."""

    def __init__(self, seconds):
        self.seconds = seconds


def test_free_rows_verify_everything_and_dear_rows_nothing():
    confidences = [[0.9, 0.8], [0.3, 0.1, 0.05]]
    assert choose_lengths(confidences, [1, 1], Table(lambda rows: 1.0)) == [2, 3]
    assert choose_lengths(confidences, [1, 1], Table(lambda rows: float(rows))) == [0, 0]
    assert choose_lengths(confidences, [1, 1], Table(lambda rows: None)) == [2, 3]


def test_rows_go_to_the_drafts_that_are_likeliest_to_survive():
    # two rows are free, a third doubles the cost
    costs = Table(lambda rows: 1.0 if rows <= 5 else 2.0)
    assert choose_lengths([[0.9, 0.9], [0.5, 0.4], [0.95, 0.1]], [1, 1, 1], costs) == [1, 0, 1]
    assert choose_lengths([[0.9, 0.9], [], [0.2, 0.1]], [1, 1, 1], costs) == [2, 0, 0]
    assert admit([[0.9, 0.9], [0.5, 0.4], [0.95, 0.1]], [1, 1, 1], 2) == [1, 0, 1]


def test_patience_looks_past_a_dear_row_and_a_limit_holds():
    costs = Table(lambda rows: 1.0 if rows == 1 else 2.0)  # the second row is dear, all further ones are free
    assert choose_lengths([[0.9] * 6], [1], costs) == [0]
    assert choose_lengths([[0.9] * 6], [1], costs, patient=True) == [6]
    assert choose_lengths([[0.9] * 6], [1], costs, patient=True, most=5) == [5]
    assert choose_lengths([[0.9], [0.8]], [1, 1], Table(lambda rows: 1.0), most=1) == [1, 0]


def test_a_budget_takes_the_fewest_rows_on_ties_and_looks_past_steps_in_the_curve():
    stairs = Table(lambda rows: float((rows + 3) // 4))  # four rows cost as much as one
    assert choose_budget([[0.9] * 7], [1], stairs) == 3
    assert choose_budget([[0.0] * 7], [1], Table(lambda rows: 1.0)) == 0
    assert choose_budget([[1.0] * 7], [1], Table(float)) == 0  # a token a second, however many rows
    late = Table(lambda rows: 1.0 if rows == 2 else 1.6)  # the knee is at the first draft, the rest is free
    assert choose_budget([[0.99] * 7, [0.99] * 7], [1, 1], late) == 14


def test_ties_go_to_earlier_steps():
    costs = Table(lambda rows: 1.0 if rows <= 4 else 9.0)
    assert choose_lengths([[1.0, 1.0], [1.0, 1.0]], [1, 1], costs) == [1, 1]
    assert admit([[1.0, 1.0], [1.0, 1.0]], [1, 1], 2) == [1, 1]
    assert admit([[1.0, 1.0], [1.0, 1.0]], [1, 1], 3) == [2, 1]


def test_a_padded_forward_computes_the_longest_request_for_all():
    confidences, costs = [[0.9, 0.9, 0.9], [0.9], []], Table(lambda rows: 1.0 if rows <= 6 else 9.0)
    assert rows_of([1, 1, 1], [3, 1, 0]) == 7
    assert rows_of([1, 1, 1], [3, 1, 0], lambda width: width) == 12
    assert choose_lengths(confidences, [1, 1, 1], costs) == [2, 1, 0]
    assert choose_lengths(confidences, [1, 1, 1], costs, widths=lambda width: width) == [1, 1, 0]
    # a graph of width 1 or 4: one draft costs as much as three
    graph = {1: 1, 2: 4, 3: 4, 4: 4}.__getitem__
    assert choose_budget(confidences, [1, 1, 1], Table(lambda rows: 1.0 + rows / 24), graph) == 9
    assert admit(confidences, [1, 1, 1], 9, graph) == [3, 1, 0]
    assert admit(confidences, [1, 1, 1], 8, graph) == [0, 0, 0]


@pytest.mark.parametrize(("threshold", "kept"), [(0.0, 4), (0.5, 2), (0.85, 1), (0.95, 0)])
def test_a_threshold_stops_before_the_first_doubtful_draft(threshold, kept):
    assert above_threshold([0.9, 0.8, 0.3, 0.99], threshold) == kept
