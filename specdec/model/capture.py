"""Hidden states of a target, taken by hooks while it runs.

Boundary ``i`` is the residual stream that enters decoder layer ``i``; boundary ``L`` (the number of layers) leaves the
last layer, before the final norm. ``last`` is the state after the final norm.
"""

from __future__ import annotations

from typing import Any

import torch

from specdec.errors import EngineError


def decoder_layers(model: Any) -> torch.nn.ModuleList:
    """The list of decoder layers, wherever the architecture keeps it."""
    count = model.config.get_text_config(decoder=True).num_hidden_layers
    found = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count]
    if not found:
        raise EngineError(f"{type(model).__name__} has no list of {count} decoder layers to take hidden states from")
    return found[0]


def _every_row(module: Any, args: Any, kwargs: Any) -> Any:
    """Layers that read the keys of others are left out for rows without logits; their states are wanted here."""
    return (args, {**kwargs, "logits_to_keep": None}) if "logits_to_keep" in kwargs else None


class HiddenStateCapture:
    """Registers hooks on ``model``; after a forward, ``take()`` returns what they saw.

    Args:
        last: capture the states after the final norm.
        boundaries: ids in 0..L, in the order in which they are concatenated.
    """

    def __init__(self, model: Any, last: bool, boundaries: tuple[int, ...] = ()) -> None:
        self.want_last, self.boundaries = last, tuple(boundaries)
        self._last: torch.Tensor | None = None
        self._seen: dict[int, torch.Tensor] = {}
        self._ready: tuple[torch.Tensor | None, torch.Tensor | None] | None = None
        self._hooks: list[Any] = []
        if last or boundaries:
            self._hooks.append(model.base_model.register_forward_pre_hook(_every_row, with_kwargs=True))
        if last:
            self._hooks.append(model.base_model.register_forward_hook(self._on_base))
        if boundaries:
            layers = decoder_layers(model)
            bad = [b for b in boundaries if not 0 <= b <= len(layers)]
            if bad:
                raise EngineError(f"aux hidden state boundary {bad[0]} is outside 0..{len(layers)} of this target")
            for boundary in sorted(set(boundaries)):
                if boundary < len(layers):
                    hook = layers[boundary].register_forward_pre_hook(self._before(boundary), with_kwargs=True)
                else:
                    hook = layers[-1].register_forward_hook(self._after(boundary))
                self._hooks.append(hook)

    def _on_base(self, module: Any, args: Any, output: Any) -> None:
        self._last = output[0]

    def _before(self, boundary: int) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            self._seen[boundary] = args[0] if args else kwargs["hidden_states"]

        return hook

    def _after(self, boundary: int) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            self._seen[boundary] = output[0] if isinstance(output, tuple) else output

        return hook

    def take(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """(last [R, W, H] or None, aux [R, W, num_aux * H] or None) of the latest forward; forgets them."""
        last, seen, ready = self._last, self._seen, self._ready
        self._last, self._seen, self._ready = None, {}, None
        if ready is not None:
            return ready
        if not self.boundaries:
            return last, None
        parts = [seen[b] for b in self.boundaries]
        return last, parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def put(self, last: torch.Tensor | None, aux: torch.Tensor | None) -> None:
        """States for the next ``take()``, from a replayed forward that runs no hooks."""
        self._ready = (last, aux)

    def remove(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
