"""Chat templates give what transformers gives, and stop when they go too far, in time and memory."""

from __future__ import annotations

import resource
import time

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec.engine import chat_template
from specdec.engine.chat_template import TemplateLimit, bounded_templates
from specdec.engine.prompts import tokenize
from specdec.errors import RequestError

MESSAGES = [
    {"role": "system", "content": "Be brief. 100% \u2028 <b>"},
    {"role": "user", "content": "  Name three rivers. "},
    {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"a": [1, 2.5, None]}}]},
    {"role": "user", "content": [{"type": "text", "text": "And 12345678 lakes?"}]},
]


def tokenizer_with(template):
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(61)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, chat_template=template, bos_token="w1", eos_token="w2")


def rendered(template, **options):
    return tokenizer_with(template).apply_chat_template(MESSAGES, tokenize=False, **options)


GOOD = [
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}",
    "{% for m in messages %}{{ loop.index0 ~ ':' ~ loop.last ~ m.role + '=' + (m.content|string|trim) }}\n{% endfor %}",
    "{% for m in messages recursive %}{% if m is mapping %}{{ m|tojson(indent=2) }}{{ loop(m.keys()|list) }}{% else %}{{ m }}{% endif %}{% endfor %}",
    "{% macro f(x, y=3) -%} [{{ x }}|{{ y }}] {%- endmacro %}{% for m in messages if m.content %}{{ f(m.role, y=m.content|length) }}{% endfor %}",
    "{% set ns = namespace(t='', n=0) %}{% for m in messages %}{% set ns.t = ns.t ~ m.role %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.t * 2 }}{{ ns.n ** 2 % 7 }}",
    "{% for k, v in messages[0].items() %}{{ k }}{{ '%s/%5d' % (v, 3) }}{{ '{:>6}'.format(k) }}{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role|upper|replace('U', 'XX') }}{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.content|default('none', true) }}{% endgeneration %}{% endfor %}{% if add_generation_prompt %}>{% endif %}",
    "{{ messages|map(attribute='role')|join(', ') }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ range(3)|list }}",
    "{{ (messages|last).content[0].text.split()[1:]|join('-') }}{{ messages[0].content[::-1] }}{{ 7 / 2 }}{{ 7 // 2 }}{{ -(messages|length) }}",
    "{% filter upper %}{% for m in messages %}{{ m.role }}{% else %}nobody{% endfor %}{% endfilter %}{{ dict(a=1)|tojson }}{{ messages[1].content|indent(4, true) }}",
]


@pytest.mark.parametrize("template", GOOD)
@pytest.mark.parametrize("prompt", [True, False])
def test_templates_give_what_transformers_gives(template, prompt):
    want = rendered(template, add_generation_prompt=prompt)
    with bounded_templates():
        assert rendered(template, add_generation_prompt=prompt) == want != ""


def test_errors_of_templates_are_those_of_transformers():
    with bounded_templates(), pytest.raises(Exception, match="roles must alternate"):
        rendered("{{ raise_exception('roles must alternate') }}")
    with bounded_templates(), pytest.raises(Exception, match="unsafe"):
        rendered("{{ messages.__class__.__mro__ }}")
    with pytest.raises(RequestError, match="the chat template refuses these messages: roles must alternate"):
        tokenize({"messages": MESSAGES}, tokenizer_with("{{ raise_exception('roles must alternate' ~ ' ' * 999) }}"))


LOOP = "{% for a in range(100000) %}"
BAD = {
    "nested loops": f"{LOOP}{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}{{% endfor %}}",
    "loops that write": f"{LOOP}{LOOP}hello{{{{ a }}}}{{% endfor %}}{{% endfor %}}",
    "loops that write into a variable": f"{{% set x %}}{LOOP}{LOOP}hello world{{% endfor %}}{{% endfor %}}{{% endset %}}{{{{ x }}}}",
    "a long text": "{{ 'a' * 10000000000 }}",
    "a long list": "{{ ([0] * 10000000000)|length }}",
    "a long text by steps": "{{ ((('a' * 99999) * 99999) * 99999)|length }}",
    "doubling": "{% set ns = namespace(x='ab') %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubling by ~": "{% set ns = namespace(x='ab') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling by join": "{% set ns = namespace(x='ab') %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x]|join %}{% endfor %}",
    "doubling by format": "{% set ns = namespace(x='ab') %}{% for a in range(60) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
    "doubling by replace": "{% set ns = namespace(x='ab') %}{% for a in range(60) %}{% set ns.x = ns.x.replace('a', 'aa').replace('b', 'bb') %}{% endfor %}",
    "nested lists": "{% set ns = namespace(x=['ab']) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "nested lists as JSON": "{% set ns = namespace(x=['ab']) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
    "squaring": "{% set ns = namespace(x=3) %}{% for a in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "a power": "{{ 10 ** (10 ** 10) }}",
    "a power of a variable": "{% set x = 10 ** 9 %}{{ 7 ** x }}",
    "a width": "{{ '%1000000000d' % 1 }}",
    "a width by *": "{{ '%*d' % (1000000000, 1) }}",
    "a format": "{{ '{:1000000000}'.format(1) }}",
    "a format within": "{{ '{:{}}'.format(1, 1000000000) }}",
    "a format filter": "{{ '%1000000000d'|format(1) }}",
    "center": "{{ 'a'|center(1000000000) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "indent": "{{ ('a\n' * 100000)|indent(100000) }}",
    "replace": "{{ ('a' * 100000).replace('a', 'b' * 100000)|length }}",
    "join": "{{ ('b' * 100000).join(['a'] * 100000)|length }}",
    "join of a map": "{{ range(100000)|map('string')|join('b' * 90000) }}",
    "recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(200) }}",
    "a long source": "a" * (1 << 21),
    "deep": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "a conversation that is too long": "{% for a in range(1000) %}{{ 'x' * 20000 }}{% endfor %}",
}


@pytest.mark.parametrize("name", BAD)
def test_templates_that_go_too_far_are_stopped(name, monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 0.3)
    tokenizer, start = tokenizer_with(BAD[name]), time.thread_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RequestError, match=r"the chat template (was stopped|refuses these messages): "):
        tokenize({"messages": MESSAGES}, tokenizer)
    assert time.thread_time() - start < 10  # it would be hours
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # kB; it would be gigabytes


def test_nested_use_and_other_callers(monkeypatch):
    """The bound is there inside only, and again inside itself; transformers is as it was afterwards."""
    from transformers.utils import chat_template_utils as stock

    before = stock._compile_jinja_template
    with bounded_templates(), bounded_templates():
        assert stock._compile_jinja_template is not before
        with pytest.raises(TemplateLimit):
            rendered(BAD["a long text"])
    assert stock._compile_jinja_template is before
