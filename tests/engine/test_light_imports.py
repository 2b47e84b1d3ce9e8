"""A process that defers torch's compiler computes the same, and has the whole compiler when it asks for it."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys
from specdec.model.load.light_imports import light_imports
import torch

available = torch.distributed.is_available
found = {}
with light_imports():
    found["deferred"] = "torch._dynamo.eval_frame" not in sys.modules
    from transformers import LlamaConfig, AutoModelForCausalLM
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
found["restored"] = torch.distributed.is_available is available and "torch._dynamo" not in sys.modules
from transformers import masking_utils
ids = torch.arange(12).view(2, 6)
mask = masking_utils.create_causal_mask(
    config, inputs_embeds=torch.zeros(2, 6, 32), attention_mask=None, past_key_values=None,
    and_mask_function=lambda b, h, q, k: (q - k) < 3,  # read by vmap, inside a context that the compiler defines
)
with torch.inference_mode():
    found["logits"] = model(ids, attention_mask=mask).logits.double().sum().item()
    found["generated"] = model.generate(ids, do_sample=False, max_new_tokens=4).tolist()
import torch._dynamo
torch._dynamo.config.suppress_errors = False
found["compiled"] = torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.zeros(2)).tolist()
print(json.dumps(found))
"""
WITHOUT = SCRIPT.replace("with light_imports():", "import transformers.modeling_utils\nwith light_imports():")
DEMANDING = """
import sys
from specdec.model.load import light_imports
import torch
with light_imports._deferred_compiler():
    assert torch._dynamo.allow_in_graph(len) is len and torch._dynamo.disable(recursive=False)(len) is len
    assert type(sys.modules["torch._dynamo"]).__name__ == "_Deferred"
    {demand}
    assert type(sys.modules["torch._dynamo"]).__name__ == "module"
import torch._dynamo.utils as utils
assert utils.__spec__.loader is not None and utils is sys.modules["torch._dynamo"].utils
"""


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_results_are_those_of_a_full_import():
    light, full = json.loads(run(SCRIPT)), json.loads(run(WITHOUT))
    assert light.pop("deferred") and not full.pop("deferred")
    assert light.pop("restored") and not full.pop("restored")
    assert light == full


def test_what_the_stand_in_lacks_loads_the_compiler():
    run(DEMANDING.format(demand="assert callable(torch._dynamo.optimize)"))
    run(DEMANDING.format(demand="from torch._dynamo.utils import counters"))
