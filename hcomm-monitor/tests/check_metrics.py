# Asks HOST:PORT for /metrics, and reads the answer with the grammar of the text format (prometheus.io, "Exposition formats").
# Checks its rules: names, one TYPE before the samples of a family, no sample twice, buckets that grow and end in +Inf with the
# count. Says what is in it.
#     check_metrics.py HOST:PORT
import json, re, sys, urllib.request
with urllib.request.urlopen("http://" + sys.argv[1] + "/metrics") as answer:
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
    text = answer.read().decode()
assert text.endswith("\n")
types, samples, families = {}, {}, []
label = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
for line in text.splitlines():
    if line.startswith("# TYPE "):
        _, _, name, kind = line.split(" ")
        assert name not in types and kind in ("counter", "gauge", "histogram"), line
        types[name] = kind
    elif line.startswith("# HELP "):
        assert len(line.split(" ", 3)) == 4 and line.split(" ")[2] not in types, line
    else:
        match = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)', line)
        name, labels, value = match.groups()
        pairs = label.findall(labels)
        assert ",".join(f'{k}="{v}"' for k, v in pairs) == labels and len(dict(pairs)) == len(pairs), line
        base = re.sub("_(bucket|sum|count)$", "", name)
        family = name if name in types else base
        assert family in types and (family == name or types[family] == "histogram"), line
        if not families or families[-1] != family:
            assert family not in families, "the samples of a family are together: " + line
            families.append(family)
        key = (name, tuple(sorted(pairs)))
        assert key not in samples, line
        samples[key] = float(value)
        assert types[family] == "gauge" or samples[key] >= 0, line
        assert types[family] != "counter" or name.endswith("_total"), line
buckets = {}
for (name, pairs), value in samples.items():
    if name.endswith("_bucket"):
        le = float(dict(pairs)["le"])
        buckets.setdefault((name[:-7], tuple(p for p in pairs if p[0] != "le")), []).append((le, value))
for (name, pairs), steps in buckets.items():
    steps.sort()
    assert steps[-1][0] == float("inf") and steps[-1][1] == samples[name + "_count", pairs], name
    assert all(a[1] <= b[1] for a, b in zip(steps, steps[1:])), steps
    assert (name + "_sum", pairs) in samples
total = lambda name, op: sorted(v for (n, p), v in samples.items() if n == name and dict(p).get("operation") == op)
print(json.dumps({
    "calls": total("hcomm_operations_total", "all_reduce"), "bytes": total("hcomm_operation_bytes_total", "broadcast"),
    "histograms": len(buckets), "types": len(types),
    "jobs": sorted({dict(p)["job_id"] for _, p in samples}), "text": text,
}))
