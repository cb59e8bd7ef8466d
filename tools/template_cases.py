"""Conversations that chat templates are rendered with: fixed ones for every feature, and random ones."""

TEXTS = ["", " ", "\n\nHi", "Hello", "What's the weather in Paris?", "  padded  ", "a\tb", "línea ünïcode 漢字 🙂", "<|im_end|>",
         "[INST] nested [/INST]", "<think>\nreason\n</think>\n\nanswer", "<think>open", "one</think>two", "{{ 7 * 7 }}",
         "quote \" and ' and \\ back", "<b>html</b> & more", "line1\r\nline2", "\u00a0nbsp\u3000", "e\u0301", "x" * 300]

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the <current> weather & more\nin a place.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city, e.g. \"São Paulo\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
        "detail": {"type": ["string", "null"], "nullable": True},
        "extra": {"type": "object", "properties": {"depth": {"type": "number"}, "flags": {
            "type": "array", "items": {"type": "boolean"}}}, "required": ["depth"]}},
        "required": ["city"]}, "return": {"type": "string"}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Search.", "parameters": {"type": "object", "properties": {
        "query": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
        "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "any": {"oneOf": [{"type": "string"}, {"type": "number", "description": "n", "default": 1}]}},
        "required": ["query"]}}}
BARE = {"type": "function", "function": {"name": "ping", "description": "No arguments.", "parameters": {
    "type": "object", "properties": {}}}}
NO_PARAMS = {"type": "function", "function": {"name": "noop", "description": "Nothing at all."}}
FLAT = {"name": "flat_tool", "description": "Without the function wrapper.",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
TOOL_SETS = [None, [WEATHER], [SEARCH, WEATHER], [BARE], [NO_PARAMS], [FLAT], []]

DOCUMENTS = [{"title": "Doc <1>", "text": "First text."}, {"title": "Zwei", "text": "Zweiter\nText", "url": "http://x/y"}]


def call(name, arguments, call_id="call00001", kind="function"):
    return {"id": call_id, "type": kind, "function": {"name": name, "arguments": arguments}}


def system(text="You are a helpful assistant."):
    return {"role": "system", "content": text}


def user(text="Hi"):
    return {"role": "user", "content": text}


def assistant(text="Hello!", **more):
    return {"role": "assistant", "content": text, **more}


def fixed_messages():
    yield [user()]
    yield [system(), user()]
    yield [system()]
    yield [assistant()]
    yield [user(), user("again")]
    yield [user(), assistant(), assistant("twice")]
    yield [system(), system("second"), user()]
    yield [user(), system("late"), assistant()]
    yield [{"role": "developer", "content": "Be brief."}, user()]
    yield [{"role": "alien", "content": "?"}]
    yield [{"role": "user"}]
    yield [user(None)]
    yield [system(None), user()]
    yield [user(), assistant(None)]
    yield [user(""), assistant("")]
    yield [system("  "), user(" \n"), assistant("\n ")]
    yield [user([{"type": "text", "text": "part one"}, {"type": "text", "text": "part two"}])]
    yield [system([{"type": "text", "text": "system part"}]), user([{"type": "image"}, {"type": "text", "text": "look"}])]
    yield [user([{"type": "image_url", "image_url": {"url": "http://x/i.png"}}])]
    yield [user([])]
    yield [user({"parts": [{"type": "text", "text": "mapping"}]})]
    yield [system({"text": "sys"}), user(), assistant({"blocks": [{"type": "thoughts", "text": "hm"}, {
        "type": "response", "text": "ok"}]})]
    yield [user(), assistant(), user("more"), assistant("sure"), user("last")]
    turns = [system()]
    for i in range(10):
        turns += [user(f"question {i}"), assistant(f"answer {i}")]
    yield turns + [user("end")]
    yield [user(), assistant("<think>\nlong\n</think>\n\nfinal"), user("next")]
    yield [user(), assistant("final", reasoning_content="because"), user("next"), assistant("x", reasoning_content="")]
    yield [user(), assistant("final", thinking="because"), user("next")]
    yield [user(), assistant("final", reasoning="because"), user("next")]
    yield [user("Weather?"), assistant(None, tool_calls=[call("get_weather", {"city": "Paris", "days": 2})]),
           {"role": "tool", "name": "get_weather", "content": "{\"temp\": 21.5}", "tool_call_id": "call00001"}]
    yield [user("Weather?"), assistant("", tool_calls=[call("get_weather", "{\"city\": \"Paris\"}")]),
           {"role": "tool", "name": "get_weather", "content": "sunny", "tool_call_id": "call00001"}, assistant("Sunny.")]
    yield [user("Both?"), assistant("Looking.", tool_calls=[call("get_weather", {"city": "Köln"}, "abcdefgh1"),
                                                            call("search", {"query": "x", "tags": ["a", "b"]}, "abcdefgh2")]),
           {"role": "tool", "name": "get_weather", "content": "rain", "tool_call_id": "abcdefgh1"},
           {"role": "tool", "name": "search", "content": {"hits": [1, 2.0, None, True]}, "tool_call_id": "abcdefgh2"},
           assistant("Done."), user("thanks")]
    yield [user("c"), assistant(tool_calls=[{"name": "flat_tool", "arguments": {"a": "b"}}]),
           {"role": "tool", "content": "r"}]
    yield [user("c"), assistant("t", tool_calls=[]), user("d")]
    yield [user("c"), {"role": "assistant", "tool_calls": [call("ping", {})]}, {"role": "tool", "content": ["a", 1]}]
    yield [user("c"), {"role": "assistant", "content": "x", "tool_calls": [call("ping", {}, "short")]}]
    yield [user("c"), {"role": "assistant", "tool_calls": [call("ping", {"n": None, "f": 1e100, "b": False, "s": "<&>'\""})]},
           {"role": "ipython", "content": "out"}]
    yield [user("c"), {"role": "assistant", "tool_plan": "First ping.", "tool_calls": [call("ping", {}, "0")]},
           {"role": "tool", "tool_call_id": "0", "content": "pong"}, {"role": "chatbot", "content": "Ok"}]
    yield [{"role": "tool", "content": "orphan"}]
    yield [user("f"), {"role": "function", "name": "ping", "content": "x"}, assistant("y")]
    for text in TEXTS:
        yield [system(text), user(text), assistant(text), user(text)]


VARIABLES = [{}, {"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True}, {"reasoning_effort": "high"},
             {"documents": DOCUMENTS}, {"builtin_tools": ["browser", "python", "code_interpreter"]},
             {"date_string": "01 Jan 2030"}, {"tools_in_user_message": False}, {"model_identity": "You are X."},
             {"controls": {"length": "short", "originality": "abstractive"}}, {"citations": True},
             {"thinking_budget": 512}, {"thinking_budget": 0}, {"safety_mode": "STRICT"}, {"xml_tools": False},
             {"custom_instructions": "Use rhyme."}, {"keep_past_thinking": True}, {"clear_thinking": False},
             {"available_tools": [{"name": "a"}]}, {"documents": []}, {"skip_thinking": True}]

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def random_conversation(rng):
    messages = []
    if rng.random() < 0.5:
        messages.append(system(rng.choice(TEXTS)))
    for _ in range(rng.randint(1, 5)):
        messages.append(user(rng.choice(TEXTS)))
        if rng.random() < 0.3:
            calls = [call(rng.choice(["get_weather", "search", "ping"]), rng.choice(
                [{}, {"city": rng.choice(TEXTS)}, {"query": "q", "tags": [], "n": rng.choice([0, -1, 2.5, None, True])}]),
                          f"call{rng.randint(10000, 99999)}") for _ in range(rng.randint(1, 2))]
            messages.append(assistant(rng.choice([None, "", "Looking."]), tool_calls=calls))
            for one in calls:
                messages.append({"role": "tool", "name": one["function"]["name"], "tool_call_id": one["id"],
                                 "content": rng.choice(TEXTS)})
        messages.append(assistant(rng.choice(TEXTS)))
    if rng.random() < 0.6:
        messages.append(user(rng.choice(TEXTS)))
    if rng.random() < 0.1:
        rng.shuffle(messages)
    return messages


def conversations(rng, count):
    """`count` sets of variables at least: all fixed conversations, then random ones."""
    cases = []
    for i, messages in enumerate(fixed_messages()):
        variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": i % 2 == 0, **SPECIAL}
        cases.append(variables)
        if any("tool_calls" in message for message in messages):
            cases.append({**variables, "tools": [SEARCH, WEATHER], "add_generation_prompt": i % 2 == 1})
    plain = [system(), user("Hi"), assistant("Hello"), user("Weather?")]
    for tools in TOOL_SETS:
        cases.append({"messages": plain, "tools": tools, "documents": None, "add_generation_prompt": True, **SPECIAL})
        cases.append({"messages": plain[1:], "tools": tools, "documents": None, "add_generation_prompt": False, **SPECIAL})
    for more in VARIABLES:
        base = {"messages": plain, "tools": None, "documents": None, "add_generation_prompt": True, **SPECIAL}
        cases.append({**base, **more})
        cases.append({**base, "tools": [WEATHER], **more, "messages": plain[1:]})
    cases.append({"messages": plain, "tools": None, "documents": None, "add_generation_prompt": True})
    while len(cases) < count:
        variables = {"messages": random_conversation(rng), "tools": rng.choice(TOOL_SETS), "documents": None,
                     "add_generation_prompt": rng.random() < 0.5, **SPECIAL, **rng.choice(VARIABLES)}
        cases.append(variables)
    return cases
