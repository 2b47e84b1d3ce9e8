"""The trained EAGLE-3 head against its golden vectors, where its folder is: SPECDEC_DRAFTERS, or shared/ beside the checkout."""

from __future__ import annotations

import json
import os
from pathlib import Path

import eagle_heads as heads
import torch
from safetensors.torch import load_file

from specdec.drafts.eagle3 import Eagle3Draft
from specdec.model.target import load_target

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "drafters"
HEAD = Path(os.environ.get("SPECDEC_DRAFTERS", SHARED)) / "smollm2-135m-eagle3"
TARGET = "SmolLM2-135M-Instruct"

if HEAD.is_dir():  # 20 MB of weights are not part of the project

    @torch.no_grad()
    def test_golden_vectors() -> None:
        target = load_target(TARGET, dtype="bfloat16", device="cpu")
        target.model.float()  # the vectors were made from rounded weights, in float32
        target.dtype = torch.float32
        network = Eagle3Draft.load(heads.resolved("eagle3", str(HEAD), 5, target=TARGET), target.handle(512))
        golden = load_file(HEAD / "golden" / "tensors.safetensors")
        for case in json.loads((HEAD / "golden.json").read_text())["cases"]:
            stored = {name.removeprefix(f"{case['name']}."): value for name, value in golden.items()}
            states, prompt = stored["aux_hidden_states"], torch.tensor([case["prompt_ids"]])
            seen = target.model(prompt, output_hidden_states=True).hidden_states
            assert torch.allclose(torch.cat([seen[i][0] for i in (2, 15, 27)], -1), states, atol=5e-3, rtol=1e-3)
            features = network.features(states)
            assert torch.allclose(features, stored["fused"], atol=1e-3)
            tokens, positions = [*case["prompt_ids"][1:], case["newest_token"]], torch.arange(64)[None]
            for step, expected in enumerate(case["steps"]):
                x = network.inputs(torch.tensor([tokens]), features[None], positions[:, : len(tokens)] == 0)
                hidden = network(x, positions[:, : len(tokens)], None, None)[0, -1:]
                assert torch.allclose(hidden[0], stored[f"step{step}.state_before_norm"], atol=1e-3)
                logits = network.logits(hidden)[0]
                if step == 0:
                    assert torch.allclose(logits, stored["step0.draft_logits"], atol=1e-3)
                top = logits.topk(3)
                assert network.to_target[top.indices].tolist() == expected["top3_target_ids"]
                assert torch.allclose(top.values, torch.tensor(expected["top3_logits"]), atol=1e-3)
                tokens.append(expected["draft"])
                features = torch.cat((features, network.feedback(hidden)))
