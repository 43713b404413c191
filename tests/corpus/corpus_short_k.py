"""Products whose k ends in the first stage of its tiles."""
from corpus_graph import Graph


def short_k(name, k, io="bf16", rows=512, columns=512, batches=1, a_rows=False, b_columns=False,
            pair=False, compute="f32"):
    """A k that ends in the first stage: boxes narrower than its lines."""
    g = Graph(f"matmul_short_k_{name}", io, compute=compute)
    g.tensor("a", [batches, rows, k], **({"stride": [rows * k, 1, rows]} if a_rows else {}))
    weights = ("b", "b2") if pair else ("b",)
    for w in weights:
        g.tensor(w, [batches, k, columns], **({} if b_columns else {"stride": [columns * k, 1, k]}))
    products = [g.matmul("a", w, f"{w}_product") for w in weights]
    if pair:
        products = [g.pointwise("mul", "gated", g.pointwise("swish_fwd", "gate", products[0]), products[1])]
    g.output(products[0])


short_k("24", 24)
short_k("40_columns", 40, b_columns=True)
short_k("8_rows", 8, a_rows=True)
short_k("32_both_f16", 32, "f16", a_rows=True, b_columns=True, columns=520)
short_k("16_batches", 16, rows=200, columns=104, batches=6)
short_k("40_pair", 40, rows=256, columns=256, pair=True)
short_k("48_f8", 48, "f8e4m3")
short_k("40_of_few_rows", 40, rows=17, columns=4096)
short_k("24_tf32", 24, "f32", rows=200, columns=104, compute="tf32")
# Threads read whole stages of rows that lie together.
short_k("24_tf32_rows", 24, "f32", rows=200, columns=104, a_rows=True, compute="tf32")
