"""Writes oracle.json: small graphs with the results that they must give, computed here from the
definitions of GRAPH_JSON.md alone. Run it again after changing a definition; the file is committed."""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "oracle"))

import attention  # noqa: E402
import case  # noqa: E402
import limits  # noqa: E402
import linear  # noqa: E402
import norm  # noqa: E402
import pointwise  # noqa: E402
import random_numbers  # noqa: E402
import resample  # noqa: E402

for module in (pointwise, limits, linear, norm, attention, resample, random_numbers):
    module.cases()
attention.packed_cases()
names = [c["name"] for c in case.CASES]
assert len(set(names)) == len(names), "two cases have one name"
lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in case.CASES)
(HERE / "oracle.json").write_text('{"cases":[\n' + lines + "\n]}\n")
