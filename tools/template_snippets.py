"""Random Jinja templates by family: generate(rng, family) gives (template, variables).

Most snippets are meant to render; some are wrong on purpose, since an error must be an error on both sides.
"""

STRINGS = ["", " ", "a", "abc", "Hello World", "hello-world foo_bar", "  pad  ", "a,b,,c", "x\ny\r\nz", "tab\there", "ÄÖÜ ß",
           "ﬁne ŉ", "ΑΣ ΣΑΣ", "漢字かな", "🙂 emoji 👩‍👩‍👧", "e\u0301\u00e9", "İıI", "ǆ ǅ", "1", "42", "-7", "3.14", "1e3", "0x1F",
           "  12  ", "1_000", "٣", "½", "²", "True", "none", "<b>&\"'</b>", "%s and %d", "{} {x}", "a'b", 'a"b', "back\\slash",
           "\u00a0nbsp\u2003", "\x1f\x85\u2028", "aaa", "abcabc", "ABC", "Title Case Words", "under_score",
           "[list] (paren) {brace}", "trailing ", "https://example.com/a?b=c&d=é", "x" * 40, "nan", "inf", "é", "\ud83d\ude42"]
NAMES = ["x", "y", "s", "n", "items", "d", "nested", "missing", "f", "t"]

VARIABLES = {
    "x": 7, "y": -3, "s": "Hello World", "n": None, "f": 2.5, "t": True, "items": [3, 1, 2, 1], "words": ["b", "A", "c", "a", "B"],
    "d": {"a": 1, "b": "two", "c": [1, 2], "items": "shadow", "B": 0, "get": 5},
    "nested": {"list": [{"k": 1, "v": "x", "g": "red"}, {"k": 2, "v": "y", "g": "Red"}, {"k": 1, "v": None, "g": "blue"}],
               "dict": {"in": {"deep": [1, {"er": "!"}]}}},
    "users": [{"name": "Bob", "age": 30, "tags": ["x"], "ok": True}, {"name": "alice", "age": 25, "tags": [], "ok": False},
              {"name": "Carl", "age": 30, "tags": ["y", "z"], "ok": True}, {"age": 1}],
    "empty": [], "edict": {}, "u": "漢字 ünï 🙂", "html": "<a href=\"x\">&'</a>", "big": 2 ** 53,
}


def literal(value):
    if isinstance(value, str):
        out = ""
        quote = "'" if "'" not in value else '"'
        for c in value:
            if c == "\\" or c == quote:
                out += "\\" + c
            elif c == "\n":
                out += "\\n"
            elif c == "\r":
                out += "\\r"
            elif ord(c) < 32 or ord(c) in (0x85, 0x2028) or 0xD800 <= ord(c) < 0xE000:
                out += f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"
            else:
                out += c
        return quote + out + quote
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(literal(v) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(literal(v) + ", " for v in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(literal(k) + ": " + literal(v) for k, v in value.items()) + "}"
    if isinstance(value, float):
        return "(" + repr(value) + ")"
    return str(value) if value >= 0 else f"({value})"


def any_string(rng):
    if rng.random() < 0.15:
        return "".join(rng.choice("ab cAB-_.,\n\t 'é漢0") for _ in range(rng.randint(0, 12)))
    return rng.choice(STRINGS)


def any_int(rng):
    return rng.choice([0, 1, -1, 2, 3, -5, 7, 10, 100, -100, rng.randint(-20, 20), 2 ** 31, 2 ** 53 + 1, -2 ** 62])


def small_int(rng):
    return rng.randint(-6, 8)


def any_float(rng):
    return rng.choice([0.0, 1.0, -1.5, 0.1, 2.5, 3.5, 1e16, 1e-5, 123456789.125, -0.0, 1e22, 5e-324, 1.7976931348623157e308,
                       round(rng.uniform(-100, 100), rng.randint(0, 6)), rng.uniform(-1, 1)])


def scalar(rng):
    return rng.choice([any_string, any_int, any_float, lambda r: None, lambda r: r.random() < 0.5, small_int])(rng)


def data(rng, depth=2):
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return scalar(rng)
    if kind < 0.7:
        return [data(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    if kind < 0.8:
        return tuple(data(rng, depth - 1) for _ in range(rng.randint(0, 3)))
    return {(any_string(rng) if rng.random() < 0.7 else small_int(rng)): data(rng, depth - 1) for _ in range(rng.randint(0, 4))}


def out(rng, *parts):
    """Prints each expression between bars."""
    return "|".join("{{ " + part + " }}" for part in parts)


def arithmetic(rng):
    def expr(depth):
        if depth == 0 or rng.random() < 0.2:
            return rng.choice([literal(any_int(rng)), literal(any_float(rng)), literal(small_int(rng)), "x", "y", "f", "t",
                               literal(small_int(rng))])
        op = rng.choice(["+", "-", "*", "/", "//", "%", "**", "-", "*", "+"])
        left, right = expr(depth - 1), expr(depth - 1)
        if op == "**":
            right = rng.choice(["2", "3", "0", "0.5", "-1", "(-2)"])
        if rng.random() < 0.1:
            left = rng.choice(["-", "+"]) + left
        return f"({left} {op} {right})" if rng.random() < 0.7 else f"{left} {op} {right}"
    return out(rng, expr(rng.randint(1, 3)), expr(1)), VARIABLES


def comparison(rng):
    def operand():
        return rng.choice([literal(data(rng)), rng.choice(NAMES), literal(small_int(rng)), literal(any_string(rng)),
                           literal(any_float(rng))])
    ops = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
    parts = []
    for _ in range(2):
        text = operand()
        for _ in range(rng.choice([1, 1, 1, 2])):
            text += f" {rng.choice(ops)} {operand()}"
        if rng.random() < 0.3:
            text = "not " + text
        if rng.random() < 0.3:
            text += rng.choice([" and ", " or "]) + operand()
        parts.append(text)
    return out(rng, *parts[:rng.choice([1, 2])]), VARIABLES


def string_methods(rng):
    s = literal(any_string(rng))
    arg = lambda: literal(any_string(rng)[:rng.choice([1, 2, 50])])
    chars = lambda: literal("".join(rng.choice(" abcxé漢-_\n") for _ in range(rng.randint(0, 3))))
    i = lambda: str(small_int(rng))
    call = rng.choice([
        "upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()",
        f"strip({chars()})", f"lstrip({chars()})", f"rstrip({chars()})", "strip(none)", f"startswith({arg()})",
        f"endswith({arg()})", f"startswith(({arg()}, {arg()}))", f"startswith({arg()}, {i()})",
        f"endswith({arg()}, {i()}, {i()})", f"replace({arg()}, {arg()})", f"replace({arg()}, {arg()}, {i()})",
        "split()", f"split({chars()})", f"split({arg()}, {i()})", f"split(none, {i()})", f"split(maxsplit={i()})",
        f"rsplit({chars()}, {i()})", f"rsplit(none, {i()})", "rsplit()", "splitlines()", "splitlines(true)",
        f"find({arg()})", f"rfind({arg()})", f"index({arg()})", f"rindex({arg()})", f"count({arg()})",
        f"find({arg()}, {i()})", f"find({arg()}, {i()}, {i()})", f"count({arg()}, {i()}, {i()})", "isalpha()", "isdigit()",
        "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isnumeric()", "isdecimal()", "isidentifier()",
        "isprintable()", "isascii()", f"zfill({i()})", f"zfill(9)", f"ljust({i()}, {arg()})", f"rjust(12)", f"center(13, '*')",
        f"center({i()})", f"center(8)", f"center(7, 'é')", f"partition({arg()})", f"rpartition({arg()})",
        f"removeprefix({arg()})", f"removesuffix({arg()})", f"expandtabs({i()})", "expandtabs()",
        f"join({literal([any_string(rng) for _ in range(3)])})", "join('abc')", f"join({literal(data(rng))})", "join(words)",
        "nosuch()", "upper", "format()", "encode", "upper(1)", "find()"])
    more = rng.choice(["", "", "|length", ".upper()", "|list", "[0]", "[-1]"])
    return out(rng, f"({s}.{call}){more}", f"{rng.choice(['s', 'u'])}.{call}"), VARIABLES


def slices(rng):
    base = rng.choice([literal(any_string(rng)), literal([data(rng, 1) for _ in range(rng.randint(0, 6))]), "items", "u", "s",
                       f"range({small_int(rng)}, {rng.randint(0, 12)}, {rng.choice([1, 2, 3, -1])})", literal(data(rng)),
                       literal(tuple(range(5)))])
    part = lambda: rng.choice(["", "", str(small_int(rng)), str(small_int(rng)), "x", "none", "'a'", "t"])
    step = rng.choice(["", "", ":" + str(rng.choice([1, 2, 3, -1, -2, -3, 0])), ":"])
    cut = f"{base}[{part()}:{part()}{step}]"
    return out(rng, cut, f"({cut})|length", f"({cut})|list", f"{base}[{small_int(rng)}]"), VARIABLES


def dicts(rng):
    base = rng.choice(["d", literal({any_string(rng): data(rng, 1) for _ in range(rng.randint(0, 12))}), "nested.dict", "edict",
                       "dict(a=1, b=2)", "dict([('k', 1), ('l', 2)])", "dict(d, z=9)", "{1: 'i', 1.0: 'f', true: 'b'}"])
    key = rng.choice(["'a'", "'b'", "'items'", "'nope'", "1", "x", "none", literal(any_string(rng)), "[1]", "(1, 2)"])
    expr = rng.choice([f"{base}[{key}]", f"{base}.get({key})", f"{base}.get({key}, 'default')", f"{base}.keys()",
                       f"{base}.values()|list", f"{base}.items()|list", f"{base}.items()", f"{base}.a", f"{base}.items",
                       f"{base}.nope", f"{base}.nope.more", f"{key} in {base}", f"{base}|length", f"{base}|list", base,
                       f"{base}.pop('a')", f"{base}.update({{}})", f"{base}|dictsort", f"{base}|items|list", f"{base}.copy()",
                       f"{base}['a'] is defined", f"{base}|tojson", f"{base}.keys()|list|first", f"{base} == dict({base})",
                       f"{base}.get({key}).x", f"{base}.a.b.c", f"{base}['get'](1)"])
    loop = "{% for k, v in " + base + ".items() %}{{ loop.index }}={{ k }}:{{ v }};{% endfor %}"
    return (out(rng, expr) if rng.random() < 0.8 else loop), VARIABLES


def text_filters(rng):
    s = rng.choice([literal(any_string(rng)), "s", "u", "html", literal(any_string(rng)), literal(data(rng, 1)), "missing", "n"])
    i = lambda: str(rng.randint(0, 20))
    arg = lambda: literal(any_string(rng)[:rng.choice([1, 3, 50])])
    f = rng.choice([
        "upper", "lower", "capitalize", "title", "trim", f"trim({arg()})", "string", "length", "wordcount", "reverse", "list",
        f"replace({arg()}, {arg()})", f"replace({arg()}, {arg()}, {i()})", "e", "escape", "safe", "forceescape", "e|e", "striptags",
        "urlencode", f"center({i()})", "center", f"indent({i()})", "indent", "indent(2, true)", "indent(2, true, true)",
        "indent('> ')", "indent(width=1, first=true)", "indent(blank=true)", f"truncate({i()})", f"truncate({i()}, true)",
        f"truncate({i()}, false, '…', 0)", f"truncate({i()}, leeway=0, killwords=true)", "first", "last",
        f"default({arg()})", f"default({arg()}, true)", "d('x', boolean=true)", "join('-')", "upper|lower|title", "tojson",
        f"format({arg()}, {i()})", "xmlattr", "wordwrap(10)", f"wordwrap({rng.randint(1, 12)}, {rng.choice(['true', 'false'])})",
        "wordwrap(8, wrapstring='|')", f"wordwrap({rng.randint(1, 9)}, break_on_hyphens=false)", "sort", "unique|list",
        "nosuch", "attr('upper')", "attr('x')"])
    return out(rng, f"{s}|{f}", f"({s}|{f})|length"), VARIABLES


def number_filters(rng):
    v = rng.choice([literal(any_int(rng)), literal(any_float(rng)), literal(any_string(rng)), "x", "f", "n", "t", "missing",
                    literal(data(rng, 1)), literal(rng.choice(["12.7", " 5 ", "0b101", "ff", "1e400", "-0", "+3", "1__0", "_1"]))])
    f = rng.choice(["int", "int(9)", "int(default=-1)", "int(0, 16)", "int(base=2)", "int(0, 0)", "float", "float(1.5)", "abs",
                    "round", "round(1)", "round(2, 'floor')", "round(1, 'ceil')", "round(method='floor')", "round(-1)",
                    "round(3)|string", "round|int", "filesizeformat", "filesizeformat(true)", "string|length", "int|string|list",
                    "float|int", "round(0, 'common')", "round(2)", "round(method='bad')"])
    return out(rng, f"{v}|{f}"), VARIABLES


def sequence_filters(rng):
    seq = rng.choice(["items", "words", "users", "nested.list", "empty", "d", literal([data(rng, 1) for _ in range(4)]),
                      literal([small_int(rng) for _ in range(6)]), literal([any_string(rng) for _ in range(5)]), "range(5)", "s",
                      "missing", "n", "users|map(attribute='name')", literal((3, 1, 2))])
    attr = rng.choice(["'age'", "'name'", "'tags.0'", "'k'", "'g'", "0", "'nope'"])
    f = rng.choice([
        "first", "last", "length", "count", "list", "join", "join(', ')", f"join('/', {attr})", f"join(attribute={attr})",
        "reverse|list", "sort", "sort(true)", "sort(case_sensitive=true)", f"sort(attribute={attr})",
        f"sort(false, true, {attr})", "sort(attribute='age,name')", "unique|list", "unique(true)|list",
        f"unique(attribute={attr})|list", "min", "max", f"min(attribute={attr})", f"max(false, {attr})", "sum",
        f"sum({attr})", "sum(start=10)", f"sum(attribute={attr}, start=1)", "batch(2)|list", "batch(3, 'x')|list",
        "slice(2)|list", "slice(3, 'x')|list", f"groupby({attr})", f"groupby({attr}, default=0)|length",
        f"groupby({attr}, case_sensitive=true)|list", "string", "tojson", "pprint", "list|length",
        "first|string", "map('upper')|join", "dictsort", "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)",
        "items|list", "reverse", "batch(0)|list", "slice(0)|list"])
    loops = "{% for group in " + seq + "|groupby(" + attr + ") %}{{ group.grouper }}:{{ group.list|length }} {% endfor %}"
    return (out(rng, f"{seq}|{f}") if rng.random() < 0.9 else loops), VARIABLES


def select_filters(rng):
    seq = rng.choice(["items", "words", "users", "nested.list", "empty", literal([data(rng, 1) for _ in range(4)]), "range(6)",
                      "missing", "d"])
    attr = rng.choice(["'age'", "'name'", "'ok'", "'tags'", "'k'", "'nope'", "'tags.0'"])
    f = rng.choice([
        "select", "reject", "select('odd')", "select('even')", "reject('none')", "select('string')", "select('divisibleby', 2)",
        "select('in', [1, 2, 'a'])", "select('>', 1)", "reject('equalto', 1)", f"selectattr({attr})", f"rejectattr({attr})",
        f"selectattr({attr}, 'defined')", f"selectattr({attr}, '==', 30)", f"rejectattr({attr}, 'none')",
        f"selectattr({attr}, 'in', [1, 30])", f"selectattr({attr}, 'equalto', 'Bob')", f"map(attribute={attr})",
        f"map(attribute={attr}, default='-')", "map('string')", "map('upper')", "map('default', 'x')", "map('replace', 'a', 'b')",
        "map('int', default=5)", "map('length')", "map('tojson')", "map('nosuch')", "select('nosuch')", "map", "selectattr",
        "map(attribute='a', x=1)", "select('lessthan', 2)|map('string')"])
    tail = rng.choice(["|list", "|join(',')", "|first", "|list|length", "|sum", "|list|last", "|tojson", "|length"])
    if rng.random() < 0.2:
        return "{% set g = " + f"{seq}|{f}" + " %}{{ g|list }}{{ g|list }}{{ 1 if g else 2 }}", VARIABLES
    return out(rng, f"{seq}|{f}{tail}"), VARIABLES


def tests(rng):
    v = rng.choice([literal(data(rng)), rng.choice(NAMES), literal(scalar(rng)), "range(3)", "d.items()", "users|map('upper')",
                    "x.nope", "namespace()", "d.get", "range", "joiner()", "html|safe"])
    t = rng.choice(["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false",
                    "mapping", "sequence", "iterable", "callable", "odd", "even", "divisibleby 3", "divisibleby(2)", "lower", "upper",
                    "escaped", "sameas none", "sameas(x)", "in [1, 'a', none]", "eq 1", "equalto('a')", "ne 2", "gt 1", "lt(5)",
                    "ge 1", "le 2", "greaterthan 0", "lessthan 0", "filter", "test", "nosuch", "in 'abc'", "sameas true",
                    "divisibleby 0", "in d", "== 1"])
    neg = rng.choice(["is", "is", "is not"])
    if rng.random() < 0.3:
        return "{% if " + f"{v} {neg} {t}" + " %}yes{% else %}no{% endif %}", VARIABLES
    return out(rng, f"{v} {neg} {t}", f"'upper' is filter", f"{literal(any_string(rng))} is test"), VARIABLES


def loops(rng):
    seq = rng.choice(["items", "words", "users", "empty", "range(4)", "s", "d", "missing", "n", "words|select",
                      literal([data(rng, 1) for _ in range(3)]), "d.items()", "items|reverse", "'aé漢'"])
    body = "".join(rng.choice([
        "{{ loop.index }}", "{{ loop.index0 }}", "{{ loop.first }}", "{{ loop.last }}", "{{ loop.length }}", "{{ loop.revindex }}",
        "{{ loop.revindex0 }}", "{{ loop.previtem }}", "{{ loop.nextitem }}", "{{ loop.previtem is defined }}",
        "{{ loop.cycle('a', 'b', 'c') }}", "{{ loop.changed(i) }}", "{{ loop.depth }}{{ loop.depth0 }}", "{{ i }}", " ", ",",
        "{% if not loop.last %}, {% endif %}", "{% if loop.first %}[{% endif %}", "{{ loop.nope }}", "{{ loop.changed(i, 1) }}",
        "{% for j in [1, 2] %}{{ loop.index }}{{ j }}{% endfor %}", "{{ loop }}", "{{ loop|length }}", "{{ loop.index ~ i }}",
        "{% set outer = loop %}{% for j in [1] %}{{ outer.index }}{% endfor %}", "{{ loop.nextitem.name }}", "{{ loop['index'] }}"])
        for _ in range(rng.randint(1, 4)))
    control = rng.choice(["", "", "", "{% break %}", "{% continue %}", "{% if loop.index == 2 %}{% break %}{% endif %}",
                          "{% if i == 1 %}{% continue %}{% endif %}", "{% if i %}{% break %}{% endif %}"])
    test = rng.choice(["", "", "", " if i", " if i is defined and i != 1", " if i is string", " if loop.index > 1", " if i > 1",
                       " if not i"])
    orelse = rng.choice(["", "", "{% else %}none", "{% else %}{{ i }}"])
    where = rng.random()
    text = "{% for i in " + seq + test + " %}"
    text += control + body if where < 0.3 else body + control
    return text + orelse + "{% endfor %}" + rng.choice(["", "{{ i }}", "{{ loop }}", "{{ loop is defined }}"]), VARIABLES


def recursive_loops(rng):
    tree = [{"n": "a", "c": [{"n": "b", "c": [{"n": "c"}]}, {"n": "d", "c": []}]}, {"n": "e"}]
    inner = rng.choice(["{{ loop(i.c) }}", "{% if i.c %}({{ loop(i.c) }}){% endif %}", "{% if i.c %}{{ loop(i.c)|upper }}{% endif %}",
                        "{{ loop(i.c or []) }}", "{{ loop() }}", "{{ loop(i.c)|trim|length }}",
                        "{% for j in i.c or [] %}{{ loop.index }}{% endfor %}"])
    parts = [inner, "{{ i.n }}", "{{ loop.depth }}", rng.choice(["{{ loop.index }}", "{{ loop.length }}", "{{ loop.depth0 }}", "-"])]
    rng.shuffle(parts)
    test = rng.choice(["", "", " if i.n != 'd'"])
    return ("{% for i in tree" + test + " recursive %}" + "".join(parts) + rng.choice(["", "{% else %}-"]) + "{% endfor %}",
            {"tree": tree})


def macros(rng):
    params = rng.choice(["", "a", "a, b", "a, b=2", "a=1, b=a", "a, b='x', c=none", "a, caller=none", "a, kwargs", "x=x"])
    body = "".join(rng.choice(["{{ a }}", "{{ b }}", "{{ x }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "-",
                               "{% if caller %}{{ caller() }}{% endif %}", "{{ kwargs|dictsort }}", "{{ varargs|length }}",
                               "{% set x = 5 %}{{ x }}", "{% for i in varargs %}{{ i }},{% endfor %}", "{{ caller('p', 2) }}",
                               "{{ m.name }}", "{% if a and a > 0 %}{{ m(a - 1) }}{% endif %}", "{{ s }}", "{{ kwargs.k }}"])
                   for _ in range(rng.randint(1, 4)))
    args = rng.choice(["", "1", "1, 2", "b=3", "1, b=3", "1, 2, 3", "1, k='v'", "*[1, 2]", "**{'a': 1}", "*items, **d", "a=1, c=2",
                       "1, 2, 3, k=4, j=5", "x", "none", "1, a=2", "*[1], b=2"])
    use = rng.choice(["{{ m(" + args + ") }}", "{% call m(" + args + ") %}body{{ x }}{% endcall %}",
                      "{% call(p, q=1) m(" + args + ") %}[{{ p }}{{ q }}]{% endcall %}", "{{ m(" + args + ")|upper|trim }}",
                      "{{ m }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}{{ m.name }}",
                      "{% for i in [1, 2] %}{{ m(i) }}{% endfor %}", "{% set r = m(" + args + ") %}{{ r|length }}{{ r }}",
                      "{{ [1, 2]|map('string')|map('upper')|join }}{{ m is callable }}", "{{ m(m) is string }}"])
    before = rng.choice(["", "", "{% set x = 9 %}", "{% set ns = namespace(v=1) %}"])
    after = rng.choice(["", "{{ a }}", "{{ x }}", "{% set x = 3 %}{{ m(1) }}"])
    return before + "{% macro m(" + params + ") %}" + body + "{% endmacro %}" + use + after, VARIABLES


def scoping(rng):
    names = ["x", "a", "b", "ns.v", "c"]

    def block(depth):
        parts = []
        for _ in range(rng.randint(1, 3)):
            name = rng.choice(names[:3] + ["c"])
            value = rng.choice(["1", "2", "'q'", "x", "a", "a ~ 'z'", "b", "[a, b]", "x + 1", "c"])
            kind = rng.random()
            if kind < 0.25:
                parts.append("{% set " + name + " = " + value + " %}")
            elif kind < 0.45:
                parts.append("{{ " + rng.choice(["x", "a", "b", "c", "ns.v"]) + " }},")
            elif kind < 0.5:
                parts.append("{% set ns.v = " + value + " %}")
            elif depth == 0:
                parts.append("{{ a is defined }}{{ x is defined }}")
            elif kind < 0.6:
                parts.append("{% if " + rng.choice(["true", "false", "x", "a", "c is defined"]) + " %}" + block(depth - 1)
                             + rng.choice(["", "{% else %}" + block(depth - 1), "{% elif x %}" + block(depth - 1)]) + "{% endif %}")
            elif kind < 0.72:
                parts.append("{% for " + rng.choice(["a", "x", "i"]) + " in [1, 2] %}" + block(depth - 1) + "{% endfor %}")
            elif kind < 0.8:
                parts.append("{% with " + rng.choice(["a = 5", "x = a, b = x", "c = 1"]) + " %}" + block(depth - 1) + "{% endwith %}")
            elif kind < 0.86:
                parts.append("{% set " + name + " %}" + block(depth - 1) + "{% endset %}")
            elif kind < 0.9:
                parts.append("{% filter upper %}" + block(depth - 1) + "{% endfilter %}")
            elif kind < 0.96:
                m = rng.choice("mn")
                parts.append("{% macro " + m + "(a) %}" + block(depth - 1) + "{% endmacro %}{{ " + m + "(7) }}")
            elif kind < 0.98:
                parts.append("{% generation %}" + block(depth - 1) + "{% endgeneration %}")
            else:
                parts.append("{% block z" + str(rng.randint(0, 10 ** 9)) + " %}" + block(depth - 1) + "{% endblock %}")
        return "".join(parts)
    start = rng.choice(["", "{% set ns = namespace(v=0) %}", "{% set ns = namespace(v=0) %}{% set a = 4 %}"])
    return start + block(rng.randint(1, 3)) + "{{ a }}{{ b }}{{ x }}", {"x": 7}


def namespaces(rng):
    make = rng.choice(["namespace()", "namespace(a=1)", "namespace({'a': 2})", "namespace(a=[], b='x')", "namespace(d)",
                       "namespace(a=namespace(b=1))", "namespace([('a', 3)])", "namespace(1)", "namespace(d, a=0)"])
    steps = "".join(rng.choice(["{{ ns.a }}", "{% set ns.a = ns.a ~ 'x' %}", "{% set ns.b = 3 %}", "{{ ns.b }}", "{{ ns['a'] }}",
                                "{{ ns.nope }}", "{{ ns.nope.x }}", "{% for i in [1, 2] %}{% set ns.a = i %}{% endfor %}",
                                "{% set ns.a, y = 1, 2 %}", "{{ ns }}", "{% set ns.a %}block{% endset %}", "{{ ns is mapping }}",
                                "{% set x.a = 1 %}", "{% set ns.items = 5 %}{{ ns.items }}", "{% set ns.a.b = 2 %}",
                                "{{ ns == ns }}", "{% macro m() %}{% set ns.a = 8 %}{% endmacro %}{{ m() }}", "{{ ns|string }}",
                                "{{ 'a' in ns }}", "{{ ns._a }}", "{{ ns.__class__ }}"]) for _ in range(rng.randint(1, 4)))
    return "{% set ns = " + make + " %}" + steps + "{{ ns.a }}", VARIABLES


def whitespace(rng):
    def gap():
        return "".join(rng.choice([" ", "\n", "\t", "  ", "\r\n", "x", "", "\r", "\u00a0"]) for _ in range(rng.randint(0, 3)))

    def sign():
        return rng.choice(["", "", "-", "+"])
    parts = [gap()]
    for _ in range(rng.randint(1, 4)):
        end = rng.choice(["", "", "-"])
        bend = rng.choice(["", "", "-", "+"])
        parts.append(rng.choice([
            "{{" + sign() + " 'v' " + end + "}}", "{%" + sign() + " set a = 1 " + bend + "%}", "{#" + sign() + " note " + bend + "#}",
            "{%" + sign() + " if x " + bend + "%}" + gap() + "y" + gap() + "{%" + sign() + " endif " + bend + "%}",
            "{%" + sign() + " raw " + end + "%}" + gap() + "{{ r }}" + gap() + "{%" + sign() + " endraw " + bend + "%}",
            "{%" + sign() + " for i in [1, 2] " + bend + "%}" + gap() + "{{ i }}" + gap() + "{%" + sign() + " endfor " + bend + "%}",
            "text", "{{" + end + " x" + sign() + "}}", "{#" + sign() + sign() + "#}"]))
        parts.append(gap())
    return "".join(parts), VARIABLES


def set_blocks(rng):
    f = rng.choice(["", "", " | upper", " | trim | length", " | replace('a', 'b')", " | indent(2)", " | nosuch", " | default(y)"])
    body = rng.choice(["abc", " {{ x }} ", "\n  line\n", "{% for i in items %}{{ i }}{% endfor %}", "", "{{ s }}"])
    return rng.choice([
        "{% set v" + f + " %}" + body + "{% endset %}[{{ v }}]{{ v|length }}",
        "{% filter upper %}" + body + "{% endfilter %}", "{% filter replace('a', 'z')|trim %}" + body + "{% endfilter %}",
        "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1, 2] %}{{ b }}", "{% set a, b = 'xy' %}{{ b }}{{ a }}",
        "{% set a, b = 1 %}{{ a }}", "{% set a, b = [1] %}", "{% set a, b = [1, 2, 3] %}", "{% set (a, b), c = (1, 2), 3 %}{{ a + c }}",
        "{% set a = 1, 2 %}{{ a }}", "{% set a = () %}{{ a }}", "{% set a, = [5] %}{{ a }}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ c }}{% endfor %}",
        "{% for a, b in d.items() %}{{ a }}{% endfor %}", "{% for a, b in items %}{{ a }}{% endfor %}", "{% set loop = 1 %}{{ loop }}",
        "{% for i in items %}{% set loop = 2 %}{% endfor %}", "{% set true = 1 %}", "{% set 1 = 2 %}", "{% set a.b = 1 %}",
        "{% set v %}{% set w = 3 %}{{ w }}{% endset %}{{ v }}{{ w }}", "{% print x, s, 'a' %}", "{% with %}{{ x }}{% endwith %}",
        "{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}{{ a }}"]), VARIABLES


def percent(rng):
    spec = "%" + rng.choice(["", "", "-", "0", "+", " ", "#", "-0", "+0"]) + rng.choice(["", "", "5", "10", "1", "*"]) + \
        rng.choice(["", "", ".2", ".0", ".5", ".*", "."]) + rng.choice(list("sdiuxXoeEfFgGcra%") + ["q", "s", "d", "s"])
    template = rng.choice(["{}", "a {} b", "{} {}", "%%{}", "%(k)s {}", "{}%"]).replace("{}", spec)
    value = rng.choice([literal(data(rng, 1)), literal(scalar(rng)), "(1, 'a')", "(x,)", "d", "(3, 2, 7.5)", "{'k': 5}", "('a', 'b')",
                        "missing", "n", "users", "(5, 3.14159)"])
    if rng.random() < 0.3:
        args = rng.choice(["1", "'a', 2", "x", "s, 5", "k=3", "1, k=2", ""])
        return out(rng, f"{literal(template)}|format({args})"), VARIABLES
    return out(rng, f"{literal(template)} % {value}"), VARIABLES


def brace(rng):
    spec = rng.choice(["", "", ":", ":>8", ":<6", ":^7", ":*^9", ":+", ": ", ":05", ":08.3f", ":.2f", ":.3", ":,", ":_", ":x", ":#x",
                       ":b", ":e", ":%", ":g", ":10d", ":s", ":c", ":é>5", ":=+6", ":n", ":X", ":.0f", ":,.2f", ":{w}", "!r", "!s", "!a",
                       "!r:>10", ":08,", ":.10g", ":q", ":#o", ":15.4e"])
    name = rng.choice(["", "", "0", "1", "a", "a.b", "a[0]", "a[k]", "b", "nope", "0.real", "0.__class__", "a.upper"])
    template = rng.choice(["{}", "x{}y", "{} {}", "{{{}}}", "{{}}{}", "{", "}"])
    field = "{" + name + spec + "}"
    template = template.replace("{}", field) if template not in ("{", "}") else template
    args = rng.choice([literal(scalar(rng)), literal(any_int(rng)), literal(any_float(rng)), literal(any_string(rng)), literal(data(rng, 1))])
    more = rng.choice(["", ", 2", ", a={'b': 1, 'k': 2}", ", a=[1, 2]", ", w=8, b=3", ", a='text'"])
    return out(rng, f"{literal(template)}.format({args}{more})"), VARIABLES


def to_json(rng):
    value = rng.choice([literal(data(rng, 3)), rng.choice(list(VARIABLES)), literal(data(rng, 2)), literal(scalar(rng)), "missing", "range(3)",
                        "d.items()", "namespace()", "users|map('upper')", "html|safe", "(1, (2, [3]))", "{none: 1, true: 2, 1.5: 3}",
                        "{(1, 2): 3}"])
    args = rng.choice(["", "", "", "indent=2", "indent=4", "indent=0", "indent='--'", "ensure_ascii=true", "separators=(',', ':')",
                       "sort_keys=true", "indent=2, sort_keys=true", "true", "false, 2", "indent=none", "indent=true",
                       "separators=('; ', '=')", "nosuch=1", "indent=1, separators=(',', ': ')", "indent=-1"])
    return out(rng, f"{value}|tojson" + (f"({args})" if args else "")), VARIABLES


def undefined(rng):
    u = rng.choice(["missing", "d.nope", "items[10]", "users[3].name", "d['nope']", "none.x", "x.y", "(1 if false)", "d.a.b", "s.nope"])
    return rng.choice([
        out(rng, u), out(rng, f"{u} is defined"), out(rng, f"{u}.more"), out(rng, f"{u}[0]"), out(rng, f"{u}()"), out(rng, f"{u} + 1"),
        out(rng, f"1 + {u}"), out(rng, f"{u} ~ 'x'"), out(rng, f"{u} == missing2"), out(rng, f"{u} == none"), out(rng, f"not {u}"),
        out(rng, f"{u} or 'default'"), out(rng, f"{u} and 1"), out(rng, f"{u}|default('d')"), out(rng, f"{u}|length"), out(rng, f"{u}|upper"),
        out(rng, f"{u}|int"), out(rng, f"{u}|list"), out(rng, f"{u}|join"), out(rng, f"{u}|first"), out(rng, f"{u}|last"), out(rng, f"-{u}"),
        out(rng, f"{u} < 1"), out(rng, f"{u} in [1]"), out(rng, f"1 in {u}"), out(rng, f"'a' in {u}"), out(rng, f"{u} in 'abc'"),
        out(rng, f"{u}|tojson"), out(rng, f"[{u}]"), out(rng, f"{{'k': {u}}}"), out(rng, f"{u}|sort"), out(rng, f"{u}|map('upper')|list"),
        out(rng, f"{u}|trim"), out(rng, f"{u}|replace('a', 'b')"), out(rng, f"{u}|indent"), out(rng, f"{u}|string"), out(rng, f"{u}|items|list"),
        out(rng, f"{u}|abs"), out(rng, f"{u}|round"), out(rng, f"{u}|float"), out(rng, f"{u}|sum"), out(rng, f"{u}|min"), out(rng, f"{u}|dictsort"),
        out(rng, f"{u}|reverse"), out(rng, f"{u}|batch(2)|list"), out(rng, f"{u}[1:]"), out(rng, f"items[{u}]"), out(rng, f"d[{u}]"),
        out(rng, f"'%s' % {u}"), out(rng, f"'{{}}'.format({u})"), out(rng, f"{u} is none"), out(rng, f"{u} is iterable"),
        "{% for i in " + u + " %}x{% else %}e{% endfor %}", "{% if " + u + " %}y{% else %}n{% endif %}", "{% set v = " + u + " %}{{ v is defined }}",
        out(rng, f"range({u})"), out(rng, f"{u}|selectattr('a')|list"), out(rng, f"{u}|unique|list"), out(rng, f"{u}|groupby('a')"),
        out(rng, f"[{u}]|join('-')"), out(rng, f"{u}|title"), out(rng, f"{u}|wordcount"), out(rng, f"{u} is string"), out(rng, f"({u},)"),
        out(rng, f"{u} ~ {u}"), out(rng, f"{u} * 2"), out(rng, f"'a' * {u}"), out(rng, f"[1] + {u}"), out(rng, f"{u}|urlencode")]), VARIABLES


def sandbox(rng):
    base = rng.choice(["s", "d", "items", "x", "n", "missing", "range", "joiner", "namespace()", "users[0]", "''", "()", "f", "cycler('a')",
                       "users|map('upper')", "d.items", "m"])
    attr = rng.choice(["__class__", "__class__.__mro__", "__init__", "_private", "__globals__", "__subclasses__", "append", "pop", "update",
                       "clear", "sort", "insert", "mro", "__dict__", "__doc__", "format", "gi_frame", "func_code", "setdefault", "extend",
                       "__len__", "__getitem__", "_x", "__html__", "remove", "reverse", "popitem"])
    form = rng.choice([f"{base}.{attr}", f"{base}.{attr}()", f"{base}['{attr}']", f"{base}|attr('{attr}')", f"{base}.{attr} is defined",
                       f"{base}.{attr}(1)", f"'{{0.{attr}}}'.format({base})", f"[{base}]|map(attribute='{attr}')|list", f"{base}.{attr}.x",
                       f"{base}.{attr} ~ ''", f"'%s' % {base}.{attr}"])
    return "{% macro m() %}{% endmacro %}" + out(rng, form), VARIABLES


def literals(rng):
    token = rng.choice([
        "1", "1_000", "0x1f", "0b101", "0o17", "0X1F", "1.5", "1e3", "1.5e-3", "1_0.0_1", "00", "012", "1.", ".5", "1e", "0x", "1__0", "9223372036854775807",
        "9223372036854775808", "-9223372036854775808", "1.0", "100000000000000000000.0", "true", "True", "TRUE", "none", "None", "NONE", "false",
        "'a' 'b'", "'a' \"b\" 'c'", "'\\n\\t\\\\'", "'\\x41\\u00e9\\U0001F600'", "'\\101'", "'\\q'", "'\\'", "\"it's\"", "'say \"hi\"'", "'\\u12'",
        "'é漢🙂'", "'\\é'", "'a\nb'", "'\\\nx'", "[1, 2,]", "[]", "[,]", "{}", "{'a': 1,}", "{'a' 1}", "(1,)", "()", "(1)", "(1, 2)", "1, 2", "1,", "{1: 2}",
        "{'a': 1, 'a': 2}", "{[1]: 2}", "{(1, 2): 3}['a']", "x y", "1 2", "a.b.c", "x.0", "items.0", "items.1.2", "'a'.0", "x..y", "x.", "[1][0]", "x[", "(x",
        "x)", "x]", "'unterminated", "x | ", "| x", "x is", "x if", "if x", "x if t else", "not", "not not x", "- - x", "+x", "~x", "x ~", "x ** ", "x = 1",
        "x == ", "@", "x; y", "$x", "ünï", "x!", "x ? y : z", "x && y", "lambda: 1", "[i for i in items]", "x.__class__", "*x", "**d", "f(x)(y)", "x.y()",
        "items[0:1:1:1]", "items[:, 1]", "d['a', 'b']", "''''", "'''a'''", "1 if t", "(1 if f else 2) + 1", "1 if t else 2 if f else 3", "x is not defined",
        "x is not not defined", "x not in items", "not x in items", "x is in items", "-x|abs", "-1|abs", "(-1)|abs", "2**-1", "-2**2", "2**3**2", "1 + 2 ~ 3", "1 ~ 2 + 3",
        "2 * 3 ~ 4", "'a' ~ 1 * 2", "1 < 2 < 3", "1 < 2 == true", "not 1 == 2", "x and y or f", "1 or 2 and 3", "5 // 2 * 3", "7 % 3 * 2", "'a' in 'abc' and true",
        "10 - 2 - 3", "2 - -3", "3|string|length + 1", "[3, 1]|sort|first", "x|default(1)|string", "x is odd and y is odd", "'%d' % x ~ 'a'", "loop", "super()", "caller()"])
    wrap = rng.choice(["{{ % }}", "{{ % }}", "{{ [%] }}", "{% if % %}y{% endif %}", "{% set v = % %}{{ v }}", "{{ (%)|string }}", "{{%}}"])
    return wrap.replace("%", token, 1) if "{%" not in wrap else wrap.replace(" % ", " " + token + " ", 1), VARIABLES


def printing(rng):
    value = literal(data(rng, 3))
    return out(rng, value, f"{value}|string|length", f"{value} ~ ''", f"[{value}]"), VARIABLES


def conditionals(rng):
    cond = lambda: rng.choice(["t", "n", "missing", "x > 3", "s", "empty", "d", "0", "''", "none", "not t", "x is odd", "'a' in d", "f", "0.0", "[[]]"])
    a, b, c = cond(), cond(), cond()
    return rng.choice([
        out(rng, f"1 if {a} else 2", f"'y' if {b}"), out(rng, f"{a} or {b}", f"{a} and {b}", f"not {a}"), out(rng, f"({a} or {b}) and {c}"),
        out(rng, f"1 if {a} else 2 if {b} else 3"), out(rng, f"('x' if {a}) is defined"), out(rng, f"({a} if {b} else {c})|string"),
        "{% if " + a + " %}a{% elif " + b + " %}b{% elif " + c + " %}c{% else %}d{% endif %}",
        "{% if " + a + " and " + b + " or not " + c + " %}a{% endif %}", "{% if " + a + " %}{% if " + b + " %}ab{% endif %}{% else %}{% if " + c + " %}c{% endif %}{% endif %}",
        "{% if " + a + ": %}colon{% endif %}", "{% if " + a + " %}{{ x|nosuch }}{% else %}ok{% endif %}", "{{ (x|nosuch) if " + a + " else 'ok' }}",
        "{% if " + a + " %}a{% endif %}{% else %}", "{% if %}a{% endif %}", "{% if " + a + " %}a"]), VARIABLES


def markup(rng):
    a = rng.choice(["html|safe", "html|e", "'<x>'|safe", "s|safe", "x|safe", "html", "'&'|e|e", "html|forceescape", "missing|e", "n|e"])
    b = rng.choice(["html", "'<y>'", "'<z>'|safe", "1", "s", "words", "missing"])
    return out(rng, rng.choice([
        f"({a}) + ({b})", f"({b}) + ({a})", f"({a}) ~ ({b})", f"({a}) * 2", f"({a})|upper", f"({a}).upper()", f"({a})[0:3]", f"[{a}]", f"({a}) % ({b},)",
        f"({a}) == ({b})", f"({a})|replace('<', {b})", f"({a}).replace('x', {b})", f"({a})|join('-')", f"({a}).join(['<', '>'])", f"({a})|tojson",
        f"({a})|string", f"({a})|string is escaped", f"({a}) is escaped", f"({a})|trim is escaped", f"({a})|length", f"({a}).split()", f"({a})|striptags",
        f"'<%s>'|safe % ({b})", f"('{{}}'|safe).format({b})", f"({a})|e", f"({a})|list", f"[{a}, {b}]|join('<')", f"({a})|indent", f"({a})|title|string",
        f"({a}).center(12)", f"({a})|lower is escaped", f"{{'a': {b}, 'b': none}}|xmlattr", f"('<%s>'|safe)|format({b})", f"({a}) < ({b})"])), VARIABLES


def text_unicode(rng):
    pool = [0x20, 0x41, 0x61, 0xDF, 0x130, 0x131, 0x149, 0x1C5, 0x3A3, 0x3C3, 0x587, 0x10A0, 0x1E9E, 0x2160, 0x24B6, 0xFB01, 0x10400, 0x1F600, 0x301,
            0x2D, 0x27, 0x2019, 0xAD, 0x200B, 0x2028, 0xA0, 0x3000, 0x660, 0x966, 0xB2, 0xBD, 0x4E00, 0x5341, 0x2170, 0x1D7CE, 0xE000, 0x378]
    text = "".join(chr(rng.choice(pool) if rng.random() < 0.7 else rng.choice([rng.randint(32, 0x24F), rng.randint(0x370, 0x1FFF),
                                                                               rng.randint(0x2000, 0xD7FF)])) for _ in range(rng.randint(1, 8)))
    f = rng.choice(["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "split()", "isalpha()", "isdigit()", "isnumeric()",
                    "isdecimal()", "isspace()", "isupper()", "islower()", "istitle()", "isprintable()", "isalnum()", "isidentifier()", "splitlines()"])
    import unicodedata
    if any(unicodedata.category(c) == "Cn" for c in text):
        text = "Ǆ" + "σΣ"
    return out(rng, f"v.{f}", "[v]", "v|title", "v|length", "v[::-1]", "v|wordcount", "v|tojson(true)", "v|urlencode", "v|int"), {"v": text}


def mixed(rng):
    """A statement-level mix: several snippets of other families around each other."""
    simple = [arithmetic, comparison, string_methods, slices, dicts, text_filters, sequence_filters, select_filters, tests, loops, macros, scoping,
              conditionals, set_blocks, namespaces, whitespace, to_json, printing]
    first, _ = rng.choice(simple)(rng)
    second, _ = rng.choice(simple)(rng)
    wrap = rng.choice(["A{}B", "{{% for q in [1, 2] %}}{}{{% endfor %}}", "{{% if t %}}{}{{% endif %}}", "{{% set z %}}{}{{% endset %}}{{{{ z }}}}",
                       "{{% macro mm() %}}{}{{% endmacro %}}{{{{ mm() }}}}", "{{% filter trim %}}{}{{% endfilter %}}", "{{% with %}}{}{{% endwith %}}"])
    return wrap.format(first) + second, VARIABLES


def broken(rng):
    """A snippet with one character removed, doubled or swapped."""
    family = rng.choice([loops, macros, set_blocks, conditionals, dicts, whitespace, text_filters, scoping])
    template, variables = family(rng)
    if not template:
        return template, variables
    at = rng.randrange(len(template))
    kind = rng.random()
    if kind < 0.4:
        template = template[:at] + template[at + 1:]
    elif kind < 0.7:
        template = template[:at] + rng.choice("{}%#-()[]|.,'\" =") + template[at:]
    elif kind < 0.85:
        template = template[:at]
    else:
        other = rng.randrange(len(template))
        template = template[:min(at, other)] + template[max(at, other):]
    return template, variables


def clock(rng):
    fmt = "".join(rng.choice(["%Y", "%m", "%d", "%H", "%M", "%S", "%B", "%b", "%A", "%a", "%j", "%U", "%w", "%y", "%p", "%I", "%%", "%f", " ", "-", "/", ", ", "%e",
                              "%F", "%T", "%D", "%-d", "%C", "%c", "%x", "%X", "%G-%V", "%u", "%Z", "é"]) for _ in range(rng.randint(1, 5)))
    return out(rng, f"strftime_now({literal(fmt)})"), VARIABLES


def layout(rng):
    value = rng.choice([literal(data(rng, 3)), "users", "nested", "d", "words", literal([any_string(rng) for _ in range(8)]), literal({any_string(rng): any_string(rng) for _ in range(6)}),
                        literal([[small_int(rng) for _ in range(12)] for _ in range(3)])])
    words = literal(" ".join(any_string(rng) for _ in range(rng.randint(1, 6))))
    return rng.choice([out(rng, f"{value}|pprint"), out(rng, f"{words}|wordwrap({rng.randint(1, 30)})"),
                       out(rng, f"{words}|wordwrap({rng.randint(2, 12)}, {rng.choice(['true', 'false'])}, {rng.choice(['none', literal('~')])}, {rng.choice(['true', 'false'])})")]), VARIABLES


def objects(rng):
    return rng.choice([
        "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}{{ c.pos }}",
        "{% set j = joiner(' | ') %}{% for i in items %}{{ j() }}{{ i }}{% endfor %}", "{% set j = joiner() %}{{ j() }}{{ j() }}{{ j.sep }}{{ j.used }}",
        "{{ cycler() }}", "{{ range(5) }}{{ range(2, 9, 3) }}{{ range(3)|list }}", f"{{{{ range({small_int(rng)}, {small_int(rng)}, {small_int(rng)})|list }}}}",
        "{{ range(10)[2:8:2] }}{{ range(10)[-1] }}{{ range(3) == range(0, 3) }}", "{{ 3 in range(5) }}{{ range(5)|length }}{{ range(5).start }}",
        "{{ range(100001) }}", "{{ range(1.5) }}", "{{ range() }}", "{{ dict() }}{{ dict(a=1) }}{{ dict is callable }}", "{{ dict([[1, 2], [3, 4]]) }}",
        "{{ x.real }}{{ x.bit_length() }}{{ f.is_integer() }}{{ (2.0).is_integer() }}{{ x.numerator }}{{ t.real }}", "{{ items.count(1) }}{{ items.index(2) }}{{ items.index(9) }}",
        "{{ (1, 2, 1).count(1) }}{{ items.copy() }}", "{{ raise_exception('boom ' ~ x) }}", "{{ raise_exception(x) }}", "{% if x > 3 %}{{ raise_exception('é漢') }}{% endif %}",
        "{{ raise_exception() }}", "{{ raise_exception(missing) }}", "{{ raise_exception([1, 'a']) }}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
        "{% from 'x' import y %}", "{% do x %}", "{% autoescape false %}{{ html }}{% endautoescape %}", "{% block a %}{{ x }}{% endblock %}",
        "{% block a %}1{% endblock %}{% block a %}2{% endblock %}", "{% generation %}{{ x }}{% endgeneration %}", "{% trans %}a{% endtrans %}",
        "{% for i in items %}{% generation %}{{ i }}{{ loop.index }}{% set q = 1 %}{% endgeneration %}{{ q }}{% endfor %}", "{% break %}", "{% continue %}",
        "{% for i in items %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for i in items %}{% set v %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endset %}{{ v }}{% endfor %}",
        "{% for i in items %}{% filter upper %}{{ i }}{% break %}{% endfilter %}{% endfor %}", "{% set ns = namespace(seen=[]) %}{% for i in items if i not in ns.seen %}{% set ns.seen = ns.seen + [i] %}{{ i }}{% endfor %}",
        "{{ lipsum is defined }}{{ joiner is callable }}", "{{ namespace }}{{ dict }}", "{{ (items, words)|map('first')|list }}", "{{ d.items() is mapping }}{{ d.keys() is iterable }}",
        "{{ d.keys() == d.keys() }}{{ 'a' in d.keys() }}{{ ('a', 1) in d.items() }}{{ d.values()|list }}", "{{ d.keys()|length }}{{ d.items()|first }}{{ d.keys()[0] }}",
        "{{ [1, 2] + [3] }}{{ (1,) + (2,) }}{{ [0] * 3 }}{{ 'ab' * 2 }}{{ 2 * [1] }}", "{{ [1] + (2,) }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] * 'a' }}", "{{ none + 1 }}", "{{ {} + {} }}",
        "{{ [[1, 2], [3]]|sum(start=[]) }}", "{{ ['a', 'b']|sum(start='') }}", "{{ [1, 'a']|sort }}", "{{ [none, 1]|min }}", "{{ [true, 2, 1.5]|max }}", "{{ 'abc'|max }}"]), VARIABLES


FAMILIES = {
    "arithmetic": arithmetic, "comparison": comparison, "string_methods": string_methods, "slices": slices, "dicts": dicts,
    "text_filters": text_filters, "number_filters": number_filters, "sequence_filters": sequence_filters,
    "select_filters": select_filters, "tests": tests, "loops": loops, "recursive_loops": recursive_loops, "macros": macros,
    "scoping": scoping, "namespaces": namespaces, "whitespace": whitespace, "set_blocks": set_blocks, "percent_format": percent,
    "brace_format": brace, "tojson": to_json, "undefined": undefined, "sandbox": sandbox, "literals": literals,
    "printing": printing, "conditionals": conditionals, "markup": markup, "unicode": text_unicode, "mixed": mixed,
    "broken": broken, "clock": clock, "layout": layout, "objects": objects,
}


def generate(rng, family):
    return FAMILIES[family](rng)
