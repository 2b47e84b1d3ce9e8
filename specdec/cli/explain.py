"""``specdec explain``: what a method, an option, an error code or a field means, and why a value is what it is."""

from __future__ import annotations

import argparse
import sys

from specdec.cli.common import print_findings

HELP = "explain a method, an option, an error code or a field"
DESCRIPTION = """Explain a name: a method (dspark), an option of it (dspark.dspark_draft_topk), an option of all methods
(num_speculative_tokens), a rule or an error code (k-exceeds-block), a field (engine.max_num_seqs), a capability, a number,
an engine feature (watermarking), a value of a checkpoint (draft.block_size).
With --why, explain one value of a configuration: where it came from and what it beat."""
EPILOG = """examples:
  specdec explain eagle3
  specdec explain dspark.dspark_draft_topk
  specdec explain k-exceeds-block
  specdec explain --why speculative.num_speculative_tokens run.yaml
  specdec explain                       every topic

exit codes: 0 fine, 1 no such topic, 2 a file could not be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="what to explain; with --why: FILE and overrides")
    parser.add_argument("--why", metavar="PATH", help="explain the value at PATH in a configuration")
    parser.add_argument("--records", action="append", default=[], metavar="FILE", help="also read the records of FILE")


def run(args: argparse.Namespace) -> int:
    if args.why:
        return why(args.why, args.topics)
    from specdec.cli.registries import registry_with
    from specdec.config.show.explain import explain, suggestion, topics_page

    registry = registry_with(args.records, "explain")
    if registry is None:
        return 1
    if not args.topics:
        print(topics_page(registry))
        return 0
    code = 0
    for number, topic in enumerate(args.topics):
        page = explain(topic, registry)
        if page is None:
            near = suggestion(topic, registry)
            hint = f"did you mean '{near}'?" if near else "'specdec explain' lists every topic"
            print(f"specdec explain: error: nothing is called '{topic[:80]}'; {hint}", file=sys.stderr)
            code = 1
        else:
            print(("\n" if number else "") + page)
    return code


def why(path: str, items: list[str]) -> int:
    """Print a value's origin, the values it beat, and what it was computed from."""
    from specdec.cli.resolving import resolve_one
    from specdec.config.findings.suggest import nearest
    from specdec.config.show.plan_text import why_text

    resolution = resolve_one("explain", items)
    if resolution is None:
        return 2
    origin = resolution.provenance.get(path)
    if origin is None:
        if resolution.config is None:
            print_findings(resolution.diagnostics)
            return 1
        near = nearest(path, resolution.provenance)
        hint = f"did you mean '{near}'?" if near else "'specdec plan --all' shows every value"
        print(f"specdec explain: error: no value at '{path[:80]}'; {hint}", file=sys.stderr)
        return 1
    print(why_text(path, resolution))
    return 0
