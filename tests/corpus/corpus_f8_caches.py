"""Attention over keys and values of f8, whose fragments become f16: lines of each width, also of an odd number of steps, one
warp of rows and two, and queries that f16 does not hold."""
from corpus_attention import attention
from corpus_graph import Graph

attention("f8_fragments", b=1, hq=2, hk=1, sq=8, skv=150, d=112, dv=48, attn_scale=0.09, causal_mask_bottom_right=True,
          stats=True, generate_stats=True, types={"K": "f8e5m2", "V": "f8e4m3"})
attention("f8_fragments_narrow", hk=2, sq=10, skv=100, d=16, dv=80, attn_scale=0.25, types={"K": "f8e4m3", "V": "f8e5m2"})


def sized_queries(name, size, queries, d, dv):
    """Of the size of a power of two, by which scores are divided again."""
    g = Graph(f"attention_f8_fragments_{name}", "bf16")
    g.pointwise("mul", "Q", g.tensor("rows", [1, 4, queries, d]), g.value("size", 2.0**size))
    for port, width in (("K", d), ("V", dv)):
        g.tensor(port, [1, 1, 300, width], data_type="f8e4m3")
    g.node("sdpa", {port: port for port in "QKV"}, {"O": "O"}, attn_scale=2.0**(-3 - size))
    g.output("O")


sized_queries("large_queries", 60, 1, 64, 48)
sized_queries("small_queries", -60, 2, 48, 64)
