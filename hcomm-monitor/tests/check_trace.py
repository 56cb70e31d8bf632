# Checks a trace against the rules of the Trace Event Format for the kinds of events that are used, and says what is in it.
#     check_trace.py FILE
import json, numbers, sys
events = json.load(open(sys.argv[1]))
assert isinstance(events, list) and events
number = lambda v: isinstance(v, numbers.Real) and not isinstance(v, bool)
ends, open_at = {}, {}
for e in events:
    assert isinstance(e["name"], str) and e["name"], e
    assert isinstance(e["pid"], int) and isinstance(e["tid"], int) and 0 <= e["tid"] < 2**31, e
    assert isinstance(e.get("args", {}), dict), e
    if e["ph"] == "M":
        key = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}[e["name"]]
        assert isinstance(e["args"][key], str if key == "name" else int), e
    elif e["ph"] == "X":
        assert number(e["ts"]) and number(e["dur"]) and e["dur"] >= 0 and isinstance(e["cat"], str), e
        # Complete events of a thread are one after the other; a nanosecond for rounding.
        thread = (e["pid"], e["tid"])
        assert e["ts"] >= ends.get(thread, -1e18) - 0.001, (e, ends[thread])
        ends[thread] = e["ts"] + e["dur"]
    elif e["ph"] == "B":
        assert number(e["ts"]) and (e["pid"], e["tid"]) not in open_at, e
        open_at[e["pid"], e["tid"]] = e["ts"]
    else:
        raise AssertionError(e)
named = {e["pid"] for e in events if e["name"] == "process_name"}
threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
assert {e["pid"] for e in events} == named and set(ends) | set(open_at) <= threads
print(json.dumps({"pids": sorted(named), "calls": sum(e["ph"] == "X" for e in events), "open": len(open_at)}))
