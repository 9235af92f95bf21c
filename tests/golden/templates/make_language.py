#!/usr/bin/env python3
"""Writes language.json: what jinja2 makes of small templates.

usage: make_language.py OUT      needs jinja2 (made with 3.1.6)

The environment is that of chat templates: immutable sandbox, trim_blocks, lstrip_blocks, loop
controls, tojson without HTML escapes, raise_exception, a fixed strftime_now. A case that jinja2
refuses has "error" with its message; "refused" lists templates that must not load.
"""
import json
import sys
from datetime import datetime

from jinja2 import exceptions
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2025, 3, 9, 14, 5, 7)
CONTEXT = {
    "msgs": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"},
             {"role": "user", "content": "bye"}],
    "nested": {"a": {"b": [0, {"c": "deep"}]}},
    "people": [{"name": "Zoe", "age": 31, "city": "b"}, {"name": "adam", "age": 7, "city": "a"},
               {"name": "Ben", "age": 31, "city": "B"}],
    "tree": [{"n": "1", "kids": [{"n": "1.1", "kids": []}, {"n": "1.2", "kids": [{"n": "1.2.1", "kids": []}]}]},
             {"n": "2", "kids": []}],
    "text": "  Grüße, Welt!\n\tzwei Wörter\r\nEnde  ",
    "odd": "a'b\"c\\d\x07é\u200b😀",
    "numbers": [3, 1.5, -2, 0],
    "empty": [],
    "nothing": None,
}
CASES = r"""
{{ 'a-b c' | title }} {{ "o'neill" | title }} {{ 'hello wORLD' | capitalize }} {{ 'ß' | upper }} {{ 'aBc'.swapcase() }}
{{ 'a b c'.title() }} {{ "they're bill's".title() }}
{{ 'x'.ljust(3) }}| {{ 'x'.rjust(3, '.') }} {{ 'x'.center(4, '*') }} {{ 'xy'.center(5, '*') }} {{ '-5'.zfill(4) }} {{ '7'.zfill(3) }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b c'.split(' ', 1) }} {{ ' a  b '.rsplit() }} {{ 'a  b c '.split(none, 1) }}
{{ 'k=v=w'.partition('=') }} {{ 'k=v=w'.rpartition('=') }} {{ 'kv'.partition('=') }} {{ 'kv'.rpartition('=') }}
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isalpha() }} {{ 'Ab'.istitle() }} {{ ' '.isspace() }} {{ 'a'.islower() }} {{ 'A1'.isupper() }} {{ '½'.isnumeric() }} {{ '½'.isdecimal() }}
{{ 'a\nb\r\nc'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ 'abcabc'.rfind('b') }} {{ 'abc'.find('z') }} {{ 'abc'.index('c') }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'abc'.removeprefix('z') }}
{{ 'a\tb'.expandtabs(4) }}| {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'abc'.replace('', '.') }} {{ 'ab'.startswith(('x', 'a')) }}
{{ 'ABC'.casefold() }} {{ 'aab'.lstrip('a') }} {{ 'baa'.rstrip('a') }} {{ 'abca'.strip('ca') }} {{ 'abc'.count('') }}
{{ '%s is %d years' % ('Zoe', 31) }} {{ '%05.2f|%x|%X|%o|%e' % (3.14159, 255, 255, 8, 12345.678) }}
{{ '%(a)s-%(b)s' % {'a': 1, 'b': 'x'} }} {{ '%r' % 'q' }} {{ '%5s|%-5s|' % ('a', 'b') }} {{ '%%' % () }} {{ '100%% of %s' | format('it') }}
{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x:>5}|{y:<4}|'.format(x='r', y='l') }} {{ '{:.2f} {:,} {:08.3f} {:+d}'.format(3.14159, 1234567, 3.14159, 5) }}
{{ '{0[k]} {1.real}'.format({'k': 1}, 2) if false else 'skip' }} {{ '{!r}'.format('q') }} {{ '{{}}'.format() }} {{ '{:*^9}'.format('mid') }} {{ '{:x} {:b} {:o} {:#x}'.format(255, 5, 8, 255) }}
{{ "%s, %s" | format('a', 'b') }} {{ "%(x)s" | format(x=3) }}
{{ people | sort(attribute='name') | map(attribute='name') | join(',') }} {{ people | sort(attribute='name', case_sensitive=true) | map(attribute='name') | join(',') }} {{ people | sort(attribute='age', reverse=true) | map(attribute='name') | join(',') }}
{{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | sort(true) }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ [3, 1.5, 2] | sort }}
{{ people | groupby('age') | map(attribute='grouper') | list }} {% for g in people | groupby('city') %}{{ g.grouper }}:{{ g.list | length }};{% endfor %} {% for k, v in people | groupby('city', case_sensitive=true) %}{{ k }}={{ v | map(attribute='name') | join('+') }} {% endfor %}
{{ ['a', 'A', 'b', 'a'] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ [1, 1.0, 2] | unique | list }}
{{ [1, 2, 3] | sum }} {{ people | sum(attribute='age') }} {{ [1, 2] | sum(start=10) }} {{ [] | sum }}
{{ [3, 1, 2] | min }} {{ [3, 1, 2] | max }} {{ ['b', 'A'] | min }} {{ people | max(attribute='age') }} {{ [] | max }}|
{{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }} {{ {'b': 1, 'A': 2} | dictsort(true) }}
{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }} {{ [1, 2, 3, 4, 5] | slice(3) | list }} {{ [1, 2] | slice(3, 0) | list }}
{{ 'abc' | first }} {{ [] | first }}| {{ 'abc' | last }} {{ [] | last }}| {{ 'abc' | reverse }} {{ {'a': 1, 'b': 2} | first }} {{ {'a': 1} | length }}
{{ [[1, 2], [3]] | map('length') | list }} {{ ['a', 'b'] | map('upper') | join }} {{ people | map(attribute='zip', default='?') | join(',') }} {{ [' a '] | map('trim') | list }} {{ ['ab'] | map('replace', 'a', 'x') | list }}
{{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1, ''] | reject | list }} {{ [1, 2, 3] | select('gt', 1) | list }} {{ [1, 2, 3, 4] | select('divisibleby', 2) | list }} {{ people | selectattr('age', '>', 10) | map(attribute='name') | list }}
{{ people | selectattr('nope') | list }} {{ people | rejectattr('nope', 'defined') | list | length }} {{ people | selectattr('name', 'in', ['Ben']) | map(attribute='age') | first }}
{{ 1 is eq 1 }} {{ 2 is gt 1 }} {{ 2 is lt 1 }} {{ 'a' is in 'abc' }} {{ 1 is ne 2 }} {{ 2 is ge 2 }} {{ 1 is le 0 }} {{ 'A' is upper }} {{ 'a' is lower }} {{ none is sameas none }} {{ 1 is sameas true }} {{ range is callable }} {{ 'upper' is filter }} {{ 'nope' is test }}
{{ () is sequence }} {{ 'a' is sequence }} {{ {} is sequence }} {{ 1 is iterable }} {{ nope is iterable }} {{ none is mapping }} {{ true is number }} {{ true is integer }} {{ 1.0 is number }} {{ false is false }} {{ 0 is false }} {{ 1 is true }}
{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5 }} {{ 1e-7 }} {{ 1E5 }} {{ 1.5e300 * 1e10 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 1e15 }} {{ 1e22 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }}
{{ 100000000000000000000 }} {{ 100000000000000000000 + 1 }} {{ 2 ** 100 }} {{ 10 ** 20 // 7 }} {{ -(10 ** 20) % 7 }}
{{ 7 // -2 }} {{ 7 % -3 }} {{ -7.5 // 2 }} {{ 7.5 % -2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 5 / 2 }} {{ 4 / 2 }} {{ true + 1 }} {{ - true }}
{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1 != 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == false }} {{ not none }} {{ nope == nope2 }}
{{ 1 and 0 }} {{ 0 or 'x' }} {{ '' or [] }} {{ 1 and 'y' }} {{ not 1 or 2 }} {{ nope or 'd' }} {{ nope and 1 }}|
{{ 'abc'[-2:] }} {{ 'abc'[5] }}| {{ 'grüße'[2] }} {{ 'grüße'[::-2] }} {{ [1, 2, 3][-1] }} {{ [1, 2, 3][10:] }} {{ (1, 2, 3)[1:] }} {{ [1, 2, 3, 4, 5][-2:0:-1] }} {{ 'abc'[:100] }} {{ 'abc'[2:1] }}|
{{ range(5)[1:3] }} {{ range(0, 10, 3) }} {{ range(3) | list }} {{ range(5, 0, -2) | list }} {{ range(3) | last }} {{ range(0) | list }} {{ 2 in range(3) }}
{{ {'a': 1}.items() }} {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }} {{ {'a': 1}.get('b') }} {{ {'a': {'b': 2}}.a.b }} {{ {1: 'one'}[1] }} {{ {'items': 5}['items'] }} {{ {'a': 1} | items | list }} {{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }}
{{ {'a': 1, 'a': 2} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {(1, 2): 3} }} {{ {none: 1} }}
{{ [1, 'a', none, true, 1.5, {'k': [()]}] }} {{ ('a',) }} {{ () }} {{ {'a': none} }} {{ odd }} {{ [odd] }} {{ ['é', '\n', '\x00', '\u200b'] }}
{{ odd | tojson }} {{ {'z': 1, 'a': [odd]} | tojson(sort_keys=true) }} {{ [1, {'a': 2}] | tojson(indent=4) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ (1, 2) | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4} | tojson }} {{ {'a': 1, 'b': 2} | tojson(separators=(',', ':')) }} {{ 1.0 | tojson }} {{ 1e100 | tojson }} {{ '</script>' | tojson }}
{% for p in people %}{{ loop.previtem.name }}<{{ p.name }}>{{ loop.nextitem.name }} {% endfor %}
{% for i in range(4) %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{% endfor %} {% for i in [1, 1, 2] %}{{ loop.changed(i) }} {% endfor %}
{% for t in tree recursive %}{{ loop.depth }}{{ t.n }}[{{ loop(t.kids) }}]{% endfor %}
{% for a in [1, 2] %}{% for b in 'xy' %}{{ a }}{{ b }}{{ loop.index }}{{ loop.length }} {% endfor %}{{ loop.index }};{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for k in {'x': 1} %}{{ k }}{% endfor %} {% for i in nope %}x{% else %}none{% endfor %} {% for i in [1, 2, 3] if i > 5 %}{{ i }}{% else %}no{% endfor %}
{% for i in [1, 2, 3, 4] if i is even %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }} {% with x = 5, y = x %}{{ x }}{{ y }}{% set x = 6 %}{{ x }}{% endwith %}{{ x }} {% with %}{% set z = 1 %}{% endwith %}{{ z is defined }}
{% set ns = namespace(a=1, b={'k': 2}) %}{% for i in range(3) %}{% set ns.a = ns.a * 2 %}{% set ns.c = i %}{% endfor %}{{ ns.a }} {{ ns.c }} {{ ns.b.k }} {{ ns.nope is defined }} {% set n2 = namespace({'q': 1}) %}{{ n2.q }}
{% macro m(a, b='d', c=b) %}[{{ a }},{{ b }},{{ c }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(b=3, a=4) }} {{ m(1, 2, 3, 4, z=5) }} {{ m() }} {{ m.name }} {{ m.arguments }}
{% macro outer(n) %}{% if n > 0 %}{{ n }}{{ outer(n - 1) }}{% endif %}{% endmacro %}{{ outer(4) }} {% macro w() %}<{{ caller('x') }}>{% endmacro %}{% call(v) w() %}got {{ v }}{% endcall %} {% macro u() %}{{ caller is defined }}{% endmacro %}{{ u() }}
{% set g = 'global' %}{% macro s() %}{{ g }}{% set g = 'inner' %}{{ g }}{% endmacro %}{{ s() }}{{ g }} {% for i in [1] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}
{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}c {% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.current }}
{% set a = b = 1 %}
{% set a, b = [1, 2] %}{{ a }}{{ b }} {% set (p, q) = 'xy' %}{{ p }}{{ q }} {% set t = 1, 2 %}{{ t }} {% set t %}  cap{{ 1 }}  {% endset %}[{{ t }}] {% set t | upper | trim %} up {% endset %}[{{ t }}]
{% filter upper | replace('A', 'x') %}banana {{ 'a' }}{% endfilter %}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(1, blank=true) }} {{ 'a\nb' | indent('> ') }} {{ '' | indent(2) }}|
{{ text | trim }}| {{ text | wordcount }} {{ text | length }} {{ text | upper }} {{ 'xxaxx' | trim('x') }} {{ text.split() }} {{ text.splitlines() }}
{{ 'hello world foo bar' | truncate(9) }} {{ 'hello world foo bar' | truncate(9, true) }} {{ 'hello world' | truncate(9) }} {{ 'hello world foo' | truncate(9, true, '!', 0) }}
{{ '<a href="x">\'&' | escape }} {{ '<b>' | e | length }} {{ '<b>' | safe }} {{ 'a b/ü?' | urlencode }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | round(1, 'ceil') }} {{ 42 | round }} {{ 3.5 | round }} {{ 4.5 | round }} {{ 1234.5 | round(-2) }} {{ 2.675 | round(2) }}
{{ '42.23' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '0x1A' | int(base=16) }} {{ '11' | int(0, 2) }} {{ ' 12 ' | int }} {{ 3.99 | int }} {{ -3.99 | int }} {{ none | int }} {{ '1e3' | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ -3 | abs }} {{ -3.5 | abs }} {{ true | int }}
{{ nope | default }}| {{ none | default('d') }} {{ none | default('d', true) }} {{ 0 | d(5, boolean=true) }} {{ false | default(1) }} {{ nope.x | default('y') if false else 'z' }}
{{ people | map(attribute='name') | join(', ', ) }} {{ [1, [2]] | join('-') }} {{ people | join('/', attribute='age') }} {{ 'abc' | join('.') }} {{ 'abc' | list }} {{ {'a': 1} | list }} {{ [1, 2, 3] | string }} {{ 5 | string | length }}
{{ nested['a']['b'][1]['c'] }} {{ nested.a.b.0 }} {{ nested.a.b[-1].c }} {{ nested.get('z', {}).get('y', 'no') }} {{ (nested | attr('items')) is defined }} {{ nested | attr('a') }}|
{{ 'a' ~ 1 ~ 1.5 ~ none ~ [1] ~ nope }} {{ 'a' 'b' "c" }} {{ [1] * 3 }} {{ 2 * 'ab' }} {{ (1,) + (2,) }} {{ 'ab' * 0 }}| {{ 'ab' * -1 }}|
{{ 'x' if 1 else 'y' }} {{ 'x' if 0 else 'y' if 0 else 'z' }} {{ ('x' if 0) is defined }} {{ 'a' if nope is defined else 'b' }} {{ 1 if nope else 2 }} {{ [1 if true else 2, 3] }}
{{ nope is not defined and true }} {{ not nope is defined }} {{ 5 is not divisibleby(2) }} {{ 'a' not in 'abc' }} {{ not 'a' in 'abc' }} {{ 1 in [1.0] }} {{ none in [none] }} {{ 'b' in {'b': 1} }} {{ 1 in nope }}
a {%- if 1 %} b {%- endif %} c
{{ {'a': [1, 2, {'b': 3}]}['a'][2].b }} {{ [[1, 2], [3, 4]][1][0] }} {{ 'a.b'.split('.')[1].upper() }} {{ ('%s' % 5) | int + 1 }} {{ [3, 1, 2] | sort | first }} {{ -1 | abs }} {{ (-1) | abs }} {{ 2 * 3 | string }} {{ 10 - 2 - 3 }}
{{ foo(1) if false else 'ok' }} {{ numbers | map('abs') | list }} {{ numbers | sum }} {{ numbers | min }} {{ nothing }} {{ empty }} {{ [nothing] }} {% if not empty and nothing is none %}y{% endif %}
{{ strftime_now('%Y %m %d %e %j %U %a %A %b %B %H %I %M %S %p %y %f %% %-d %c %x %X') }}
{% print 1, 'a' %}
{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}
{{ loop is defined }} {% for i in [1] %}{{ loop.index }}{% endfor %} {{ i is defined }}
{{ 'abc' | replace('b', 'X') | lower | upper | title }} {{ 'a' | center(5) }}| {{ 'Hello' | wordcount }} {{ 123 | replace('2', 'x') }} {{ 5 | upper }}
{{ people[0].items() | list }} {% for key, value in people[0].items() %}{{ key }}={{ value }}{{ ', ' if not loop.last }}{% endfor %} {{ people | map(attribute='name') | map('lower') | sort | join(' ') }} {{ people | length }} {{ people | selectattr('age', 'equalto', 31) | list | length }}
{{ raise_exception('two\nlines: ' ~ 1) }}
{{ nope.x }}
{{ nope['x'] }}
{{ nope() }}
{{ nope + 1 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + 'a' }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1 // 0.0 }}
{{ none | length }}
{{ [1, 'a'] | sort }}
{{ 1 < 'a' }}
{{ none.x.y }}
{{ {}.x.y }}
{{ {}.append(1) }}
{{ [].append(1) }}
{{ {[]: 1} }}
{% for i in 5 %}{% endfor %}
{% set a, b = [1] %}
{% set a, b = [1, 2, 3] %}
{{ range(1000000) }}
{{ 'a'.index('b') }}
{{ '%d' % 'a' }}
{{ '%s %s' % ('a',) }}
{{ 'a' | round }}
{{ nope | tojson }}
{{ 5() }}
{{ 'x' in 5 }}
{{ [] | first | upper }}|{{ [].x }}|{{ {'a': 1}.b }}|{{ 'abc'.nope }}|{{ 5.x if false }}|{{ none.x }}|{{ 'abc'[1.5] }}|{{ [1]['a'] }}|{{ {'a': 1}[0] }}
{{ ' a b  c d '.split(none, 2) }} {{ ' a b  c d '.rsplit(none, 2) }} {{ range(0, 10, 3)[1:] }}
{{ ''.join([1]) }}
"""
REFUSED = r"""
{% if 1 %}
{% for i in x %}
{{ 1
{{ 'a }}
{% endif %}
{% nope %}
{{ x | nope }}
{{ x is nope }}
{{ 1 + }}
{{ (1 }}
{{ [1 }}
{{ {1: } }}
{% set 5 = 1 %}
{% set %}
{% for in x %}{% endfor %}
{# open
{% raw %}x
{{ a..b }}
{{ a b }}
{% if %}{% endif %}
{% macro f(a=1, b) %}{% endmacro %}
{{ f(a=1, 2) }}
{% break %}
{{ 1 }
{{ 'a' 5 }}
{% else %}
{{ x.%y }}
{{ $ }}
{% call 5 %}{% endcall %}
{{ a is b is c }}
"""


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise exceptions.TemplateError(message)

    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    e.filters["tojson"] = tojson
    e.globals["raise_exception"] = raise_exception
    e.globals["strftime_now"] = NOW.strftime
    return e


# Templates of several lines, which the list above cannot hold.
LONG = [
    "a\n  {%+ if 1 %}b{% endif +%}\nc {%- set x = 1 -%}   d\n",
    "{% if 1 -%}\n   x\n{%- else +%} y {% endif %}\nz\n",
    "  {# comment #}\na {#- trim -#} b {#+ keep #} c\n\n",
    "{% raw -%}  {{ x }} {% y %}  {%- endraw %} e {%- raw %} q {% endraw -%} r\n",
    "    {{ 1 }}\n  {% for i in [1, 2] %}\n    {{ i }}\n  {% endfor %}\nend\n",
    "{{ \"multi\nline\" }} {{ 'a\\\nb' }}\r\n{% if 1 %}\r\nx\ry{% endif %}\r\n",
    "{% filter indent(2) %}a\nb{% endfilter %}\n",
    "\n\n{%- if 1 %}\n\n a\n {%- endif %}\n\t{% set x = 1 %}\n{{ x }}\n\t {{ x }}\n",
    "x{% if 1 %} \n y{% endif %}  \n  {%- if 1 -%}\n z {%- endif -%} \n w",
    "{{ [\n  1,\n  2,\n] }}{{ {\n 'a': 1,\n} }}{{ dict(\n a=1,\n) }}",
]

def main():
    env, cases = environment(), []
    for source in CASES.strip("\n").split("\n") + LONG:
        try:
            cases.append({"source": source, "expected": env.from_string(source).render(**CONTEXT)})
        except Exception as e:  # jinja2 lets Python's own errors through
            cases.append({"source": source, "error": str(e)})
    refused = []
    for source in REFUSED.strip("\n").split("\n"):
        try:
            env.from_string(source)
            raise SystemExit(f"jinja2 takes {source!r}")
        except (exceptions.TemplateSyntaxError, SyntaxError):
            refused.append(source)
    with open(sys.argv[1], "w") as f:
        json.dump({"context": CONTEXT, "now": NOW.isoformat(), "cases": cases, "refused": refused}, f, indent=0, ensure_ascii=True)
        f.write("\n")
    print(len(cases), "cases", sum("error" in c for c in cases), "errors", len(refused), "refused")


if __name__ == "__main__":
    main()
