"""Attention with biases and masks that come in boxes of their own, and gradients of biases."""
from corpus_attention import RANDOM, attention, attention_backward
from corpus_graph import Graph

# Of biases that all rows share a box of one row comes with the keys: beside one to four consumers, in pages, in shares and
# clusters of few rows; the last tile of keys is not whole.
attention("bias_of_keys", sq=150, skv=168, d=64, dv=64, attn_scale=0.125, inputs=[("Bias", [2, 1, 1, 168], None)], stats=True)
attention("bias_of_keys_f32", hq=2, hk=2, sq=40, skv=300, d=128, dv=128, io="f16", attn_scale=0.09, inputs=[("Bias", [2, 1, 1, 300], "f32")])
attention("bias_of_pairs", b=1, hq=2, hk=2, sq=150, skv=296, d=128, dv=128, attn_scale=0.09, inputs=[("Bias", [1, 2, 150, 296], None)])
attention("bias_of_pairs_causal", b=1, hq=2, hk=1, sq=300, skv=296, d=96, dv=96, attn_scale=0.1, inputs=[("Bias", [1, 1, 300, 296], None)], causal_mask=True, stats=True)
attention("bias_of_keys_causal", b=1, hq=2, hk=1, sq=260, skv=264, d=32, dv=32, attn_scale=0.2, causal_mask=True, inputs=[("Bias", [1, 2, 1, 264], None)])
attention("bias_of_keys_one_query", b=1, hq=8, hk=2, sq=1, skv=1000, d=128, dv=128, attn_scale=0.09, inputs=[("Bias", [1, 8, 1, 1000], None)])
attention("bias_of_keys_lengths", b=3, hq=8, hk=2, sq=3, skv=1304, d=64, dv=64, attn_scale=0.125, padding_mask=True,
          inputs=[("Bias", [3, 1, 1, 1304], None), ("SEQ_LEN_Q", [3, 1, 1, 1], "i32"), ("SEQ_LEN_KV", [3, 1, 1, 1], "i32")])
attention("bias_of_odd_keys", b=3, hq=3, hk=3, sq=131, skv=77, d=64, dv=64, attn_scale=0.125, inputs=[("Bias", [1, 3, 131, 77], None)])
attention("bias_of_few_rows", b=3, hq=3, hk=3, sq=49, skv=56, d=32, dv=32, attn_scale=0.2, io="f16", inputs=[("Bias", [1, 3, 49, 56], None)])
# Beside values of f8, which the producer's other warps transpose.
attention("f8_weights_bias", b=1, hq=2, hk=2, sq=200, skv=240, d=64, dv=64, attn_scale=0.6, io="f8e4m3", types={"O": "bf16"},
          inputs=[("Bias", [1, 2, 200, 240], "bf16")] + [("Scale_S", [1, 1, 1, 1], "f32")])

# dBias of rows in one order: sums of blocks of keys, of which bounds leave some out and the last is not whole.
attention_backward("deterministic_dbias_rows", hk=2, sq=150, skv=292, d=64, dv=64, attn_scale=0.125, causal_mask=True, dbias=True,
                   deterministic=True, inputs=[("Bias", [2, 4, 150, 1], None)])
attention_backward("deterministic_dbias_wide_rows", hq=2, hk=2, sq=70, skv=170, d=192, dv=136, attn_scale=0.07, dbias=True,
                   deterministic=True, inputs=[("Bias", [2, 2, 70, 1], "f32")])

# Biases of pairs whose scores become weights while the weights' gradients are multiplied, in boxes and element by element; dBias that
# leaves as dS, of tiles that are not whole, of an odd number of pairs of keys, alone, and under bounds.
attention_backward("bias_of_pairs", b=1, hq=2, hk=1, sq=150, skv=264, d=64, dv=64, attn_scale=0.125, inputs=[("Bias", [1, 2, 150, 264], None)])
attention_backward("bias_of_pairs_d128", b=1, hq=2, hk=2, sq=70, skv=136, d=128, dv=128, io="f16", attn_scale=0.09,
                   inputs=[("Bias", [1, 1, 70, 136], None)])
attention_backward("bias_of_pairs_f32", b=1, hq=2, hk=2, sq=70, skv=264, d=64, dv=40, attn_scale=0.125, inputs=[("Bias", [1, 2, 70, 264], "f32")])
attention_backward("dbias_pairs", hq=2, hk=2, sq=150, skv=138, d=128, dv=96, io="f16", attn_scale=0.09, dbias=True,
                   inputs=[("Bias", [2, 2, 150, 138], None)])
attention_backward("dbias_pairs_causal", b=1, hq=2, hk=2, sq=150, skv=264, d=64, dv=64, attn_scale=0.125, causal_mask=True, dbias=True,
                   inputs=[("Bias", [1, 2, 150, 264], None)])
attention_backward("dbias_pairs_dropout", b=1, hq=2, hk=2, sq=150, skv=138, d=64, dv=64, attn_scale=0.125, dropout_probability=0.2, dbias=True,
                   inputs=[("Bias", [1, 2, 150, 138], None), *RANDOM])
attention_backward("dbias_pairs_alone", b=1, hq=2, hk=2, sq=90, skv=70, d=64, dv=64, attn_scale=0.125, dbias=True, of=(),
                   inputs=[("Bias", [1, 2, 90, 70], None)])
# Of an odd number of keys each bit of dropout is a run of the generator.
attention_backward("dropout_odd_keys", b=1, hq=2, hk=2, sq=140, skv=141, d=64, dv=64, attn_scale=0.125, dropout_probability=0.2, inputs=RANDOM)


def masks_in_memory(name, b=1, h=2, s=90, skv=136, d=64, dbias=False):
    """A bias that is -infinity for half of the pairs, and for all of the first rows."""
    g = Graph("attention_backward_masks_in_memory" + name, "bf16")
    ports = {port: g.tensor(port, [b, h, rows, d]) for port, rows in (("Q", s), ("K", skv), ("V", skv))}
    g.tensor("Drawn", [b, h, s, skv])
    g.pointwise("log", "logarithms", g.pointwise("relu_fwd", "positive", "Drawn"))
    g.pointwise("cmp_lt", "first", g.pointwise("gen_index", "row", "Drawn", axis=2), g.value("rows", 20.0))
    ports["Bias"] = g.pointwise("binary_select", "Bias", g.value("nothing", "-inf"), "logarithms", "first")
    g.output("Bias")
    g.node("sdpa", dict(ports), {"O": "O", "Stats": "Stats"}, attn_scale=0.125)
    ports |= {"O": "O", "Stats": "Stats", "dO": g.tensor("dO", [b, h, s, d])}
    outputs = {t: t for t in ["dQ", "dK", "dV"] + (["dBias"] if dbias else [])}
    g.output("O", *outputs)
    g.node("sdpa_backward", ports, outputs, attn_scale=0.125)


masks_in_memory("")
masks_in_memory("_dbias", dbias=True)


def dbias_of_windows(name, b=5, h=132, s=20, skv=20, d=64, dv=64, io="bf16", infinite=None):
    """A dBias that windows share, of which a thread block takes several in turn, and fewer where they end. `infinite`: keys of heads past
    this one, whose scores are -infinity."""
    g = Graph("attention_backward_dbias_windows_" + name, io)
    ports = {t: t for t in ("Q", "K", "V", "O", "dO", "Stats", "Bias")}
    for t, rows, width in (("Q", s, d), ("K", skv, d), ("V", skv, dv), ("O", s, dv), ("dO", s, dv)):
        g.tensor(t, [b, h, rows, width])
    g.tensor("Stats", [b, h, s, 1], data_type="f32")
    g.tensor("Bias", [1, h, s, skv])
    if infinite:
        ports["Q"], ports["K"] = g.tensor("Q_changed", data_type=io), g.tensor("K_changed", data_type=io)
        g.pointwise("neg", "Q_changed", g.pointwise("abs", "sizes", "Q"))
        g.pointwise("cmp_gt", "chosen", g.pointwise("gen_index", "head", "K", axis=1), g.value("number", float(infinite)))
        g.pointwise("binary_select", "K_changed", g.value("infinite", "inf"), "K", "chosen")
    results = (["dQ"] if not infinite else []) + ["dK", "dV", "dBias"]
    g.node("sdpa_backward", ports, {t: t for t in results}, attn_scale=d**-0.5)
    g.output(*results)


dbias_of_windows("odd")
dbias_of_windows("infinite", b=3, h=264, s=9, skv=16, d=40, dv=40, infinite=255)
dbias_of_windows("three_blocks", b=7, h=130, s=9, skv=16, d=32, dv=24, io="f16")
dbias_of_windows("whole", b=4, h=198, s=64, skv=64, d=32, dv=32)


def dbias_full_f32():
    """A full dBias of f32 beside dQ and dK, whose products read dS, which may be rounded, and not dBias."""
    g = Graph("attention_backward_dbias_full_f32", "bf16")
    for name, rows in (("Q", 65), ("K", 21), ("V", 21), ("dO", 65), ("O", 65)):
        g.tensor(name, [1, 1, rows, 16])
    g.tensor("Stats", [1, 1, 65, 1], data_type="f32")
    g.tensor("Bias", [1, 1, 65, 21])
    g.node("sdpa_backward", {t: t for t in ("Q", "K", "V", "O", "dO", "Stats", "Bias")}, {t: t for t in ("dQ", "dK", "dBias")})
    g.output("dQ", "dK")
    g.output("dBias", data_type="f32")


dbias_full_f32()
# Rows whose Delta is NaN, of which pairs that a bound hides have no dBias; boxes and dBias in pairs of one tile of 129 to 256 keys, whose
# consumers add parts of dQ, and of batch entries in turn.
attention_backward("dbias_pairs_nan", b=1, hq=2, hk=2, sq=150, skv=264, d=64, dv=64, attn_scale=0.125, causal_mask=True, dbias=True, unseen=3,
                   inputs=[("Bias", [1, 2, 150, 264], None)])
attention_backward("bias_of_pairs_184_causal", b=2, hq=2, hk=2, sq=180, skv=184, d=64, dv=64, attn_scale=0.125, causal_mask=True, dbias=True,
                   inputs=[("Bias", [2, 2, 180, 184], None)])
attention_backward("dbias_pairs_turns", b=70, hq=2, hk=2, sq=66, skv=136, d=16, dv=16, attn_scale=0.25, dbias=True,
                   inputs=[("Bias", [70, 2, 66, 136], None)])
