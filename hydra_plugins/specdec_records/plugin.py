"""Stores the records in Hydra's ConfigStore when an application looks for its configuration."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.plugins.search_path_plugin import SearchPathPlugin

GROUP, PROVIDER = "speculative", "specdec"


class SpecdecRecords(SearchPathPlugin):
    """Adds no search path: options of the group are nodes that Hydra finds in its ConfigStore."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        from specdec.config.records.registry import installed

        store = ConfigStore.instance()
        for name, record in installed().records.items():
            if f"{name}.yaml" in store.repo.get(GROUP, {}):
                continue  # an application may bring its own
            # an unset option equals an absent one; without its key Hydra would ask for a leading +
            node = {"method": name, **dict.fromkeys(("num_speculative_tokens", *record.options))}
            store.store(group=GROUP, name=name, node=node, provider=PROVIDER)
