"""Progress of ``specdec extract``."""

from __future__ import annotations

import time
from typing import Any

from specdec.cli.progress import GenerationProgress


class ExtractionProgress(GenerationProgress):
    """Called after every engine step: samples on disk, tokens a second, and the time left."""

    def __call__(self, extraction: Any, tokens: Any) -> None:
        kept = len(extraction.kept)
        self.done, self.tokens = kept + len(extraction.written) + len(extraction.failed), tokens
        if time.monotonic() >= self.next:
            self.show(())
