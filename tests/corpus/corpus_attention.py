"""Attention with each of its options, and its gradients."""
from corpus_graph import Graph


def attention(name, b=2, hq=4, hk=4, sq=40, skv=40, d=16, dv=16, io="bf16", stats=False, inputs=(),
              layout=None, types=None, compute="f32", scaled=False, amax=False, **attributes):
    g = Graph("attention_" + name, io, compute=compute)
    shapes = {"Q": [b, hq, sq, d], "K": [b, hk, skv, d], "V": [b, hk, skv, dv]}
    ports = {}
    for port, dim in shapes.items():
        fields = {}
        if layout == "bshd":  # sequence before heads in memory
            _, h, s, w = dim
            fields["stride"] = [s * h * w, w, h * w, 1]
        if layout == "bhds":  # tokens lie together
            _, h, s, w = dim
            fields["stride"] = [s * h * w, s * w, 1, s]
        if types and port in types:
            fields["data_type"] = types[port]
        ports[port] = g.tensor(port, dim, **fields)
        if scaled:  # dequantised by a number in memory
            ports[port] = g.pointwise("mul", port + "_scaled", port,
                                      g.tensor("scale_" + port, [1, 1, 1, 1], data_type="f32"))
            g.tensor(port + "_scaled", data_type=io)
    for port, dim, data_type in inputs:
        ports[port] = g.tensor(port, dim, **({"data_type": data_type} if data_type else {}))
    outputs = {"O": "O"}
    if types and "O" in types:
        g.tensor("O", data_type=types["O"])
    g.output("O", **({"stride": [hq * sq * dv, sq * dv, 1, sq]} if layout == "bhds" else {}))
    if stats:
        outputs["Stats"] = "Stats"
        g.output("Stats", data_type="f32")
    if amax:
        outputs["Amax_O"] = "Amax_O"
        g.output("Amax_O", data_type="f32")
    g.node("sdpa", ports, outputs, **attributes)


LENGTHS = [("SEQ_LEN_Q", [2, 1, 1, 1], "i32"), ("SEQ_LEN_KV", [2, 1, 1, 1], "i32")]
RANDOM = [("Seed", [1], "i64"), ("Offset", [1], "i64")]
attention("plain", attn_scale=0.25)
attention("causal_stats", attn_scale=0.25, causal_mask=True, stats=True, generate_stats=True)
attention("bottom_right", sq=24, skv=56, attn_scale=0.25, causal_mask_bottom_right=True, io="f16")
attention("sliding_window", attn_scale=0.25, left_bound=8, right_bound=3)
attention("grouped_query", hq=8, hk=2, attn_scale=0.25, layout="bshd")
attention("multi_query_decode", hq=8, hk=1, sq=1, skv=129, attn_scale=0.25, io="f16")
attention("padding", attn_scale=0.25, padding_mask=True, inputs=LENGTHS, stats=True)
attention("alibi", hq=6, hk=6, attn_scale=0.25, alibi_mask=True, causal_mask=True)
attention("softcap", attn_scale=0.25, softcap=20.0, io="f16")
attention("bias", attn_scale=0.25, inputs=[("Bias", [1, 4, 40, 40], None)])
attention("dropout", attn_scale=0.25, dropout_probability=0.1, inputs=RANDOM, io="f32")
attention("dropout_bf16", attn_scale=0.25, dropout_probability=0.1, inputs=RANDOM, causal_mask=True,
          stats=True)
# Runs of the generator that two neighbours share, in whole tiles; and runs that begin anywhere.
attention("dropout_whole_tiles", b=1, hq=2, hk=2, sq=20, skv=256, d=64, dv=64, attn_scale=0.125, dropout_probability=0.3, inputs=RANDOM)
attention("dropout_odd", b=1, hq=2, hk=2, sq=20, skv=67, attn_scale=0.25, dropout_probability=0.3, inputs=RANDOM, causal_mask=True)
attention("sink", attn_scale=0.25, causal_mask=True, stats=True,
          inputs=[("SINK_TOKEN", [1, 4, 1, 1], "f32")])
attention("block_mask", b=1, hq=2, hk=2, sq=150, skv=260, attn_scale=0.25,
          inputs=[("Block_mask", [1, 2, 2, 1], "u8")])
# Keys that the thread blocks of a cluster divide (attention_forward_cluster.cuh): of one row and of 64, tiles that do not come
# out even, blocks without a tile that some row sees, what is one a row, scores with a body.
ONE_LENGTH = [(port, [1, 1, 1, 1], "i32") for port in ("SEQ_LEN_Q", "SEQ_LEN_KV")]
attention("cluster_one_query", b=1, hq=8, hk=2, sq=1, skv=1000, d=128, dv=128, attn_scale=0.09)
attention("cluster_rows", b=1, hq=4, hk=1, sq=16, skv=520, d=64, dv=64, attn_scale=0.125, causal_mask_bottom_right=True)
attention("cluster_lengths", b=1, hq=8, hk=2, sq=3, skv=700, d=64, dv=64, attn_scale=0.125, padding_mask=True, inputs=ONE_LENGTH,
          causal_mask_bottom_right=True)
attention("cluster_sink_stats", b=1, hq=8, hk=1, sq=5, skv=700, d=64, dv=64, attn_scale=0.125, causal_mask_bottom_right=True,
          inputs=[("SINK_TOKEN", [1, 8, 1, 1], "f32")], stats=True, generate_stats=True)
attention("cluster_window", hq=4, hk=4, sq=1, skv=900, d=96, dv=96, attn_scale=0.1, causal_mask_bottom_right=True, left_bound=300)
attention("cluster_softcap", b=1, hq=8, hk=2, sq=1, skv=513, d=64, dv=64, attn_scale=0.125, softcap=5.0)
# Chunks of queries over caches of any lengths: equal shares of keys, of one warpgroup of rows and of several.
CHUNK = [(port, [3, 1, 1, 1], "i32") for port in ("SEQ_LEN_Q", "SEQ_LEN_KV")]
attention("chunk", b=3, hq=8, hk=2, sq=130, skv=1300, d=64, dv=64, attn_scale=0.125, padding_mask=True, causal_mask_bottom_right=True,
          inputs=CHUNK, stats=True)
attention("chunk_of_64_rows", b=3, hq=4, hk=1, sq=16, skv=1500, d=128, dv=64, attn_scale=0.09, padding_mask=True, inputs=CHUNK, softcap=8.0)
# Few tiles of rows, of which one consumer or two leave the SMs less unlike shares (longest_share): 12 and 20 heads of several.
attention("few_tiles", b=3, hq=12, hk=12, sq=139, skv=139, d=24, dv=24, attn_scale=0.2, causal_mask=True, stats=True, generate_stats=True)
attention("few_tiles_128", b=2, hq=20, hk=4, sq=130, skv=150, d=72, dv=72, attn_scale=0.12, causal_mask_bottom_right=True)
attention("value_width", d=24, dv=40, attn_scale=0.2, io="f16")
# Of warps (attention_forward_mma.cuh): two blocks of rows each, a row's registers full, lines of shared memory of each
# width, and heads whose rows are no whole pieces of 16 bytes.
attention("two_blocks", b=1, hq=2, hk=2, sq=150, skv=200, d=64, dv=64, attn_scale=0.125, causal_mask=True, stats=True,
          generate_stats=True)
attention("two_blocks_128", b=1, hq=2, hk=1, sq=140, skv=170, d=128, dv=128, attn_scale=0.09, left_bound=70,
          right_bound=20, io="f16", layout="bshd")
attention("two_blocks_96", hq=1, hk=1, sq=130, skv=130, d=96, dv=96, attn_scale=0.1, padding_mask=True, inputs=LENGTHS)
attention("one_block_256", b=1, hq=2, hk=1, sq=70, skv=100, d=256, dv=192, attn_scale=0.06,
          causal_mask_bottom_right=True)
attention("odd_head", hq=2, hk=2, sq=70, skv=67, d=20, dv=36, attn_scale=0.2, layout="bshd", io="f16")
attention("f32", sq=33, skv=65, attn_scale=0.25, io="f32")
# f32 by warps: as sums of two tf32 numbers, and rounded to one.
attention("f32_causal", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=32, attn_scale=0.18, causal_mask=True, io="f32", stats=True)
attention("f32_window", b=1, hq=2, hk=1, sq=66, skv=70, d=128, dv=72, attn_scale=0.09, left_bound=30, right_bound=5, io="f32",
          layout="bshd")
attention("f32_two_blocks", b=1, hq=2, hk=2, sq=140, skv=65, d=32, dv=16, attn_scale=0.18, io="f32")
attention("f32_odd_head", b=1, hq=2, hk=2, sq=20, skv=35, d=20, dv=12, attn_scale=0.2, softcap=20.0, io="f32")
attention("f32_256", b=1, hq=1, hk=1, sq=17, skv=33, d=256, dv=200, attn_scale=0.06, io="f32")
attention("f32_decode", b=1, hq=4, hk=2, sq=1, skv=700, d=32, dv=32, attn_scale=0.18, io="f32")
attention("f32_unlike", hk=2, sq=1, skv=131, d=32, dv=32, attn_scale=0.18, padding_mask=True, inputs=LENGTHS, io="f32",
          types={"K": "f8e4m3", "V": "f16"})
attention("tf32", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=48, attn_scale=0.18, causal_mask_bottom_right=True, io="f32",
          compute="tf32")
# f8, whose values 16 bits hold.
attention("f8", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=32, attn_scale=0.18, causal_mask=True, io="f8e4m3", stats=True,
          types={"O": "bf16"})
attention("f8_result", b=1, hq=2, hk=1, sq=70, skv=90, d=32, dv=48, attn_scale=0.18, io="f8e4m3", types={"V": "f8e5m2"})
attention("f8_cache", hk=2, sq=1, skv=131, d=32, dv=32, attn_scale=0.18, padding_mask=True, inputs=LENGTHS, io="f16",
          types={"K": "f8e4m3", "V": "f8e5m2"})
attention("f8_cache_128", b=1, hq=8, hk=2, sq=1, skv=700, d=128, dv=64, attn_scale=0.09, types={"K": "f8e5m2", "V": "f8e4m3"})
attention("f8_values", hq=4, hk=1, sq=5, skv=75, d=64, dv=80, attn_scale=0.125, causal_mask_bottom_right=True, layout="bshd",
          types={"V": "f8e4m3"})
# Of one warp: both widened in the place of one tile, or one of them; lines of each width.
attention("f8_one_warp_keys", b=1, hq=8, hk=2, sq=2, skv=75, d=128, dv=48, attn_scale=0.09, types={"K": "f8e4m3", "V": "f8e5m2"})
attention("f8_one_warp_values", hq=4, hk=1, sq=3, skv=131, d=48, dv=128, attn_scale=0.14, padding_mask=True, inputs=LENGTHS,
          types={"K": "f8e4m3", "V": "f8e4m3"}, io="f16", softcap=8.0)
attention("f8_one_warp_one", b=1, hq=4, hk=2, sq=4, skv=90, d=64, dv=64, attn_scale=0.125, causal_mask_bottom_right=True, types={"K": "f8e4m3"},
          stats=True)
attention("f8_query", b=1, hq=2, hk=2, sq=66, skv=70, d=20, dv=24, attn_scale=0.2, left_bound=30, right_bound=5,
          types={"Q": "f8e5m2", "K": "f8e4m3"})
attention("f8_scaled", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=32, attn_scale=0.18,
          types={"Q": "f8e4m3", "K": "f8e4m3", "V": "f8e4m3"}, scaled=True)
# With scales: of whole tensors and of heads.
def scales(*ports, heads=1):
    return [(p, [1, heads, 1, 1], "f32") for p in ports]


attention("f8_scales", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=32, attn_scale=0.18, io="f8e4m3", amax=True, causal_mask=True,
          inputs=scales("Descale_Q", "Descale_K", "Descale_V", "Descale_S", "Scale_S", "Scale_O"))
# Weights rounded to f8, too: heads of each width, several tiles of keys, lengths, a score that is more than a product, and
# one whose factor is below zero. Scores lie apart, so that a key in the place of another one is seen.
F8 = {"O": "bf16"}
WEIGHTS = scales("Descale_Q", "Descale_K", "Descale_V", "Descale_S", "Scale_S")
attention("f8_weights", b=1, hq=2, hk=1, sq=200, skv=230, d=64, dv=64, attn_scale=0.75, causal_mask=True, io="f8e4m3", types=F8, layout="bshd",
          stats=True, inputs=WEIGHTS)
attention("f8_weights_128", b=1, hq=1, hk=1, sq=130, skv=290, d=128, dv=128, attn_scale=0.5, causal_mask_bottom_right=True, left_bound=6,
          io="f8e4m3", types={"O": "f16", "V": "f8e5m2"}, layout="bshd", inputs=WEIGHTS)
attention("f8_weights_padding", hq=1, hk=1, sq=70, skv=130, d=48, dv=80, attn_scale=0.6, padding_mask=True, io="f8e4m3", types=F8,
          inputs=LENGTHS + scales("Scale_S"))
attention("f8_weights_softcap", b=1, hq=2, hk=2, sq=66, skv=150, d=32, dv=16, attn_scale=0.2, softcap=5.0, left_bound=90,
          right_bound=10, io="f8e4m3", types=F8, inputs=scales("Descale_Q", "Scale_S", heads=2))
attention("f8_scales_below_zero", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=32, attn_scale=-0.18, io="f8e4m3", types=F8,
          stats=True, inputs=scales("Descale_Q", "Descale_K", "Descale_V", heads=2))
attention("f8_scales_heads", hk=2, sq=40, skv=50, d=64, dv=48, attn_scale=0.125, io="f8e4m3", types={"O": "bf16"}, stats=True,
          generate_stats=True, softcap=5.0, inputs=scales("Descale_Q", "Descale_V", heads=4))
attention("f8_scales_cache", b=1, hq=8, hk=2, sq=1, skv=700, d=64, dv=64, attn_scale=0.125, types={"K": "f8e4m3", "V": "f8e4m3"},
          amax=True, inputs=scales("Descale_K", "Descale_V", "Scale_O"))
# A largest magnitude beside a result that TMA could store.
attention("amax", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=32, attn_scale=0.18, amax=True)
attention("f8_amax", b=1, hq=2, hk=2, sq=70, skv=40, d=32, dv=32, attn_scale=0.18, causal_mask_bottom_right=True, io="f8e4m3",
          types={"O": "bf16"}, amax=True, inputs=scales("Descale_V", "Scale_O"))
attention("f8_wide", b=1, hq=1, hk=1, sq=20, skv=40, d=320, dv=264, attn_scale=0.06, io="f8e4m3", types={"O": "bf16"})


def paged_attention(name="attention_paged", b=2, hq=4, hk=2, sq=1, d=16, dv=16, page=16, pages=5, io="f16", blocks=10,
                    hv=None, cache=None, computed=False, **attributes):
    g = Graph(name, io)
    fields = {"data_type": cache} if cache else {}
    if computed:
        g.pointwise("mul", "Q", g.tensor("rows", [b, hq, sq, d]), g.value("factor", 0.75))
    else:
        g.tensor("Q", [b, hq, sq, d])
    g.tensor("K", [blocks, hk, page, d], **fields)
    g.tensor("V", [blocks, hv or hk, page, dv], **fields)
    for t in ("Page_table_K", "Page_table_V"):
        g.tensor(t, [b, 1, pages, 1], data_type="i32")
    for t in ("SEQ_LEN_Q", "SEQ_LEN_KV"):
        g.tensor(t, [b, 1, 1, 1], data_type="i32")
    ports = {p: p for p in ("Q", "K", "V", "Page_table_K", "Page_table_V", "SEQ_LEN_Q", "SEQ_LEN_KV")}
    g.node("sdpa", ports, {"O": "O"}, attn_scale=0.25, padding_mask=True, **attributes)
    g.output("O")


paged_attention()
paged_attention("attention_paged_decode", sq=3, d=128, dv=128, page=8, pages=40, blocks=85)
paged_attention("attention_paged_prefill", b=3, hq=2, sq=70, d=40, dv=40, page=32, io="bf16", blocks=18,
                causal_mask_bottom_right=True)
paged_attention("attention_paged_large_pages", hk=1, sq=5, d=64, dv=64, page=256, pages=1, blocks=3)
paged_attention("attention_paged_24", hq=2, d=64, dv=64, page=24, pages=3, blocks=9, io="bf16")
paged_attention("attention_paged_12", d=64, dv=64, page=12, pages=3, blocks=9, io="bf16")
paged_attention("attention_paged_shared_values", hk=4, hv=1, sq=20, d=32, page=8, pages=3, blocks=7)
paged_attention("attention_paged_f8", sq=3, d=32, dv=32, pages=4, io="bf16", blocks=9, cache="f8e4m3")
paged_attention("attention_paged_f8_128", hk=1, sq=3, d=128, dv=64, page=8, pages=12, io="bf16", blocks=27, cache="f8e4m3")
paged_attention("attention_paged_f32", sq=3, d=32, dv=32, pages=4, io="f32", blocks=9)
paged_attention("attention_paged_shared_keys", hk=1, hv=4, sq=20, d=32, page=8, pages=3, blocks=7)
paged_attention("attention_paged_computed_queries", d=64, dv=64, page=8, pages=3, blocks=7, computed=True)


# Heads of more than 256 elements: two consumers share 64 rows. Results of an even number of panels of 64 columns and of
# odd ones; tiles of 64, 48, 32 keys; none, one, few, many of them.
attention("wide_plain", b=1, hq=2, hk=2, sq=70, skv=130, d=320, dv=320, attn_scale=0.06)
attention("wide_causal_stats", b=1, hq=2, hk=1, sq=130, skv=130, d=512, dv=512, attn_scale=0.05, causal_mask=True,
          stats=True, generate_stats=True, io="f16", layout="bshd")
attention("wide_window", b=1, hq=2, hk=2, sq=150, skv=200, d=384, dv=384, attn_scale=0.05, left_bound=40, right_bound=5)
attention("wide_values", hq=2, hk=2, sq=66, skv=97, d=72, dv=264, attn_scale=0.12, softcap=4.0)
attention("wide_keys", hq=2, hk=2, sq=33, skv=1, d=296, dv=40, attn_scale=0.06, io="f16")
attention("wide_odd", b=1, hq=1, hk=1, sq=35, skv=77, d=300, dv=260, attn_scale=0.06)
attention("wide_sink_bias", b=1, hq=4, hk=4, sq=67, skv=190, d=264, dv=256, attn_scale=0.06, causal_mask_bottom_right=True,
          stats=True, generate_stats=True,
          inputs=[("SINK_TOKEN", [1, 4, 1, 1], "f32"), ("Bias", [1, 4, 67, 190], None)])
attention("wide_dropout", b=1, hq=2, hk=2, sq=65, skv=129, d=320, dv=448, attn_scale=0.06, dropout_probability=0.2,
          inputs=RANDOM)
attention("wide_padding", hq=2, hk=1, sq=90, skv=150, d=288, dv=288, attn_scale=0.06, padding_mask=True, inputs=LENGTHS,
          stats=True, generate_stats=True)
attention("wide_block_mask", b=1, hq=2, hk=2, sq=150, skv=260, d=264, dv=264, attn_scale=0.06,
          inputs=[("Block_mask", [1, 2, 2, 1], "u8")])
attention("latent_separate", b=1, hq=24, hk=1, sq=3, skv=161, d=576, dv=512, attn_scale=0.04)


def latent_attention(name, b=2, hq=16, hk=1, sq=1, skv=130, d=576, dv=512, io="bf16", stats=False, lengths=False, inputs=(),
                     epilogue=False, page=0, layout=None, **attributes):
    """The values are the first columns of the keys."""
    g = Graph("attention_latent_" + name, io)
    rows = [b * -(-skv // page) + 1, hk, page] if page else [b, hk, skv]
    fields = {"stride": [skv * hk * d, d, hk * d, 1]} if layout == "bshd" else {}
    ports = {"Q": g.tensor("Q", [b, hq, sq, d]), "K": g.tensor("K", rows + [d], **fields),
             "V": g.slice("K", "V", [0, 0, 0, 0], rows + [dv])}
    for port, dim, data_type in list(inputs) + (LENGTHS if lengths or page else []):
        ports[port] = g.tensor(port, dim, **({"data_type": data_type} if data_type else {}))
    if page:
        ports["Page_table_K"] = ports["Page_table_V"] = g.tensor("table", [b, 1, -(-skv // page), 1], data_type="i32")
    if lengths or page:
        attributes["padding_mask"] = True
    outputs = {"O": "O"}
    if stats:
        outputs["Stats"], attributes["generate_stats"] = "Stats", True
        g.output("Stats", data_type="f32")
    g.node("sdpa", ports, outputs, attn_scale=0.04, **attributes)
    g.output(g.pointwise("add", "Y", "O", g.tensor("Residual", [b, hq, sq, dv])) if epilogue else "O")


latent_attention("decode", sq=2, stats=True)
latent_attention("decode_split", b=1, skv=700, epilogue=True)
latent_attention("many_heads", b=1, hq=128, skv=65, io="f16")
latent_attention("one_key", b=1, skv=1)
latent_attention("causal", b=1, hq=2, sq=100, skv=130, causal_mask_bottom_right=True, layout="bshd", hk=2)
latent_attention("lengths", sq=3, skv=140, lengths=True, stats=True)
latent_attention("sink_window", b=1, hq=4, sq=90, skv=150, left_bound=50, right_bound=4, stats=True,
                 inputs=[("SINK_TOKEN", [1, 4, 1, 1], "f32")])
latent_attention("whole", b=1, hq=2, sq=70, skv=129, d=512, softcap=5.0, epilogue=True)
latent_attention("small", b=1, hq=8, sq=9, skv=200, d=320, dv=256)
latent_attention("paged", sq=2, skv=160, page=32)
latent_attention("paged_large", skv=256, page=128, causal_mask_bottom_right=True, io="f16")


def attention_backward(name, inputs=(), dbias=False, hk=4, sq=32, skv=32, d=16, dv=16, io="bf16",
                       layout=None, lengths=None, stored=False, b=2, hq=4, of_dbias=None, unseen=0, given_o=False, of=("dQ", "dK", "dV"), **attributes):
    g = Graph("attention_backward_" + name, io)
    ports = {}

    def without_first_rows(port):  # NaN in rows that see nothing
        if not unseen:
            return port
        row = g.pointwise("gen_index", port + "_row", port, axis=2)
        beyond = g.pointwise("log", port + "_log", g.pointwise("sub", port + "_from", row, g.value("first", unseen - 0.5)))
        g.tensor(port + "_seen", data_type=io)
        return g.pointwise("add", port + "_seen", port, g.pointwise("mul", port + "_nan", beyond, g.value("zero", 0)))

    def tensor(port, h, s, w):
        fields = {"stride": [s * h * w, w, h * w, 1]} if layout == "bshd" else {}
        return g.tensor(port, [b, h, s, w], **fields)

    for port, h, s, w in (("Q", hq, sq, d), ("K", hk, skv, d), ("V", hk, skv, dv)):
        ports[port] = tensor(port, h, s, w)
    for port, dim, data_type in inputs:
        ports[port] = g.tensor(port, dim, **({"data_type": data_type} if data_type else {}))
    tensor("dO", hq, sq, dv)
    ports["Q"], d_o = without_first_rows("Q"), without_first_rows("dO")
    for port, about in (lengths or {}).items():  # about + 20 times a small random integer
        g.tensor(f"{port}_drawn", [b, 1, 1, 1], data_type="i32")
        g.tensor(f"{port}_steps", data_type="i32")
        g.tensor(port, data_type="i32")
        g.pointwise("mul", f"{port}_steps", f"{port}_drawn", g.value(f"{port}_step", 20, "i32"))
        ports[port] = g.pointwise("add", port, f"{port}_steps", g.value(f"{port}_about", about, "i32"))
        if stored:
            g.output(port)
    g.node("sdpa", dict(ports), {"O": "O", "Stats": "Stats"}, **attributes)
    g.output("O")
    outputs = {p: p for p in [*of] + (["dBias"] if dbias else [])}
    if given_o:  # gradients of a row's scores add up to zero where O is what the forward pass gave
        tensor("O_given", hq, sq, dv)
    g.node("sdpa_backward", {**ports, "O": "O_given" if given_o else "O", "dO": d_o, "Stats": "Stats"}, outputs, **attributes)
    g.output(*of)
    if dbias:
        g.output("dBias", **({"data_type": of_dbias} if of_dbias else {}))




def attention_training(name, b=2, hq=4, hk=2, sq=70, d=64, io="bf16"):
    """Gradients whose heads are joined and which are multiplied, as in a training step."""
    g = Graph("attention_training_" + name, io)
    for port, h in (("Q", hq), ("K", hk), ("V", hk), ("dO", hq)):
        g.tensor(port, [b, h, sq, d])
    ports = {p: p for p in "QKV"}
    g.node("sdpa", dict(ports), {"O": "O", "Stats": "Stats"}, attn_scale=0.125, causal_mask=True)
    g.output("O")
    g.node("sdpa_backward", {**ports, "O": "O", "dO": "dO", "Stats": "Stats"}, {p: p for p in ("dQ", "dK", "dV")},
           attn_scale=0.125, causal_mask=True)
    for port, h in (("Q", hq), ("K", hk), ("V", hk)):
        g.tensor(f"d{port}", data_type=io)
        rows = g.transpose(f"d{port}", g.tensor(f"rows_{port}", data_type=io), [0, 2, 1, 3])
        joined = g.reshape(rows, g.tensor(f"joined_{port}", data_type=io), [b * sq, h * d])
        g.matmul(joined, g.tensor(f"weight_{port}", [h * d, 24]), f"y_{port}")
        g.output(f"y_{port}")


attention_training("joined_heads")
attention_backward("causal", attn_scale=0.25, causal_mask=True)
attention_backward("grouped_bias", attn_scale=0.25, hk=2, dbias=True,
                   inputs=[("Bias", [1, 4, 32, 32], None)])
attention_backward("dropout_softcap", attn_scale=0.25, softcap=15.0, dropout_probability=0.25,
                   inputs=RANDOM)
attention_backward("dropout_causal", attn_scale=0.125, causal_mask=True, dropout_probability=0.1, hk=2, sq=130, skv=130,
                   d=128, dv=128, io="f16", inputs=RANDOM)
attention_backward("grouped", attn_scale=0.125, hk=2, sq=96, skv=160, d=64, dv=64)
attention_backward("bottom_right", attn_scale=0.125, hk=1, sq=130, skv=70, d=72, dv=128, io="f16",
                   layout="bshd", causal_mask_bottom_right=True)
attention_backward("window", attn_scale=0.09, sq=150, skv=150, d=128, dv=128, left_bound=40,
                   right_bound=3)
attention_backward("padding", attn_scale=0.25, hk=2, sq=72, skv=140, d=32, dv=40,
                   causal_mask=True, padding_mask=True, stored=True,
                   lengths={"SEQ_LEN_Q": 50, "SEQ_LEN_KV": 110})
attention_backward("padding_computed", attn_scale=0.25, padding_mask=True,
                   lengths={"SEQ_LEN_Q": 12, "SEQ_LEN_KV": 12})
attention_backward("softcap", attn_scale=0.25, softcap=3.0, sq=65, skv=67, d=24, dv=24)
attention_backward("alibi_bias", attn_scale=0.125, hk=4, sq=40, skv=48, d=64, dv=64,
                   alibi_mask=True, inputs=[("Bias", [1, 4, 1, 48], None)])
attention_backward("one_column", b=1, hq=1, hk=1, sq=3, skv=1, d=4, dv=2, attn_scale=0.5)
attention_backward("odd", attn_scale=0.3, sq=33, skv=31, d=20, dv=16, io="f16")
# Queries that see nothing hold NaN: the first rows of a tile that has others, too.
for unseen_name, unseen_d, unseen_more in (("rows", 64, {}), ("rows_softcap", 64, {"softcap": 5.0}), ("rows_wide", 136, {})):
    attention_backward("unseen_" + unseen_name, attn_scale=0.125, b=1, hq=2, hk=1, sq=150, skv=130, d=unseen_d, dv=unseen_d, unseen=20,
                       causal_mask_bottom_right=True, **unseen_more)
# Heads of more than 128 elements: blocks of 64 of them, an even number, an odd one, and unlike ones.
attention_backward("wide_causal", attn_scale=0.0625, b=1, hq=2, hk=2, sq=130, skv=130, d=256, dv=256, causal_mask=True)
attention_backward("wide_latent", attn_scale=0.07, b=1, hq=2, hk=2, sq=100, skv=100, d=192, dv=128, io="f16", layout="bshd",
                   causal_mask=True)
attention_backward("wide_grouped_softcap", attn_scale=0.08, b=1, hk=2, sq=70, skv=161, d=136, dv=136, softcap=5.0)
attention_backward("wide_padding", attn_scale=0.06, hq=2, hk=1, sq=72, skv=140, d=200, dv=72, padding_mask=True,
                   left_bound=60, right_bound=10, stored=True, lengths={"SEQ_LEN_Q": 50, "SEQ_LEN_KV": 110})
attention_backward("narrow_wide_values", attn_scale=0.15, sq=70, skv=97, d=40, dv=104)
attention_backward("wide_dropout", attn_scale=0.1, b=1, hq=1, hk=1, sq=65, skv=97, d=64, dv=192, dropout_probability=0.2,
                   inputs=RANDOM)


# Gradients of a bias: one element for each pair of query and key, and what is broadcast along each dimension.
def dbias(name, dims, of_bias=None, more_inputs=(), **more):
    attention_backward("dbias_" + name, attn_scale=0.125, dbias=True, inputs=[("Bias", dims, of_bias), *more_inputs], of_dbias=of_bias,
                       **more)


dbias("full", [2, 4, 70, 104], sq=70, skv=104, d=64, dv=64)
dbias("batch", [1, 2, 200, 104], sq=200, skv=104, d=128, dv=128, hq=2, hk=2)
dbias("heads", [2, 1, 70, 97], sq=70, skv=97, d=64, dv=64, io="f16", of_bias="f32")
dbias("rows", [2, 1, 1, 197], sq=70, skv=197, d=128, dv=128, hq=2, hk=1)
dbias("keys", [1, 2, 150, 1], sq=150, skv=97, d=64, dv=64, hq=2, hk=2, given_o=True)
dbias("one", [1, 1, 1, 1], sq=70, skv=97, d=32, dv=32, of_bias="f32", given_o=True)
dbias("one_bf16", [1, 1, 1, 1], sq=30, skv=40, d=32, dv=32, b=3, hq=1, hk=1, given_o=True)
dbias("one_row", [2, 4, 1, 150], sq=1, skv=150, d=64, dv=64)
dbias("grouped", [2, 2, 97, 140], sq=97, skv=140, d=64, dv=64, hq=2, hk=1, io="f16")
dbias("causal_lengths", [2, 2, 150, 150], sq=150, skv=150, d=64, dv=64, hq=2, hk=2, causal_mask=True, padding_mask=True, stored=True,
      of_bias="f32", lengths={"SEQ_LEN_Q": 120, "SEQ_LEN_KV": 90})
dbias("softcap_alibi", [1, 1, 70, 104], sq=70, skv=104, d=64, dv=64, softcap=4.0, alibi_mask=True)
dbias("dropout", [1, 4, 1, 97], sq=70, skv=97, d=64, dv=64, dropout_probability=0.2, more_inputs=RANDOM)
dbias("wide", [2, 2, 70, 97], sq=70, skv=97, d=192, dv=192, hq=2, hk=2)
dbias("wide_rows", [2, 1, 1, 161], sq=70, skv=161, d=192, dv=128, hq=2, hk=1, io="f16")
dbias("wide_keys", [1, 2, 70, 1], sq=70, skv=130, d=136, dv=136, hq=2, hk=2, softcap=5.0, given_o=True)
dbias("wide_one_row", [2, 2, 1, 130], sq=1, skv=130, d=136, dv=136, hq=2, hk=2)

# Masks of blocks of 128 queries and keys; with bounds, and beside a bias.
attention_backward("block_mask", b=2, hq=1, hk=1, sq=270, skv=250, d=64, dv=64, attn_scale=0.125,
                   inputs=[("Block_mask", [2, 1, 3, 1], "u8")])
attention_backward("block_mask_grouped", b=1, hq=4, hk=2, sq=140, skv=250, d=72, dv=72, attn_scale=0.09, io="f16",
                   causal_mask=True, inputs=[("Block_mask", [1, 4, 2, 1], "u8")])
attention_backward("block_mask_wide", b=1, hq=2, hk=1, sq=140, skv=260, d=192, dv=128, attn_scale=0.07,
                   inputs=[("Block_mask", [1, 2, 2, 1], "u8")])
attention_backward("block_mask_wide_softcap", b=1, hq=1, hk=1, sq=140, skv=260, d=256, dv=256, attn_scale=0.06, softcap=5.0,
                   inputs=[("Block_mask", [1, 1, 2, 1], "u8")])
attention_backward("block_mask_dbias", b=1, hq=1, hk=1, sq=140, skv=1030, d=64, dv=64, attn_scale=0.125, dbias=True,
                   inputs=[("Bias", [1, 1, 140, 1030], None), ("Block_mask", [1, 1, 2, 2], "u8")])


# Several sequences in one batch entry, tokens before heads in memory.
def offsets(sequences, data_type="i32"):
    return [(t, [sequences + 1, 1, 1, 1], data_type) for t in ("CU_SEQ_LEN_Q", "CU_SEQ_LEN_KV")]


attention("packed_causal", b=1, hq=4, hk=2, sq=230, skv=230, d=64, dv=64, attn_scale=0.125, causal_mask=True, layout="bshd",
          stats=True, generate_stats=True, inputs=offsets(5))
attention("packed_tokens_together", b=1, hq=2, hk=2, sq=64, skv=40, d=24, dv=16, attn_scale=0.25, causal_mask=True, layout="bhds",
          inputs=offsets(3))
attention("packed_window", b=1, hq=2, hk=2, sq=150, skv=300, d=128, dv=128, attn_scale=0.09, io="f16",
          causal_mask_bottom_right=True, left_bound=70, layout="bshd", inputs=offsets(3, "i64"))
attention("packed_sink_dropout", b=1, hq=2, hk=2, sq=90, skv=100, d=40, dv=36, attn_scale=0.15, dropout_probability=0.2,
          stats=True, inputs=offsets(9) + RANDOM + [("SINK_TOKEN", [1, 2, 1, 1], "f32")])
attention("packed_alibi", b=1, hq=2, hk=2, sq=50, skv=60, d=32, dv=32, attn_scale=0.18, alibi_mask=True, inputs=offsets(3))
attention("packed_wide", b=1, hq=2, hk=2, sq=70, skv=70, d=256, dv=256, attn_scale=0.06, causal_mask=True, inputs=offsets(2))
attention("packed_wider", b=1, hq=1, hk=1, sq=40, skv=40, d=264, dv=264, attn_scale=0.06, inputs=offsets(2))
attention_backward("packed_causal", b=1, hk=2, sq=230, skv=230, d=64, dv=64, attn_scale=0.125, causal_mask=True,
                   layout="bshd", inputs=offsets(5))
attention_backward("packed_window", b=1, hq=2, hk=1, sq=130, skv=290, d=128, dv=128, attn_scale=0.09, io="f16",
                   causal_mask_bottom_right=True, left_bound=70, layout="bshd", inputs=offsets(3, "i64"))
attention_backward("packed_softcap", b=1, hq=2, hk=2, sq=90, skv=100, d=40, dv=40, attn_scale=0.15, softcap=4.0,
                   inputs=offsets(9))
attention_backward("packed_wide", b=1, hq=2, hk=1, sq=140, skv=140, d=192, dv=128, attn_scale=0.07, causal_mask=True,
                   layout="bshd", inputs=offsets(4))


# Behind O stands a node that reads Stats, which the same kernel stores.
def attention_behind_stats(b=1, heads=2, q=70, kv=90, d=32):
    g = Graph("attention_behind_stats", "bf16")
    ports = {port: g.tensor(port, [b, heads, rows, d]) for port, rows in {"Q": q, "K": kv, "V": kv}.items()}
    g.node("sdpa", ports, {"O": "O", "Stats": "Stats"}, attn_scale=0.18, causal_mask=True, generate_stats=True)
    g.output("Stats", data_type="f32")
    g.pointwise("max", "Y", "O", "Stats")
    g.output("Y")


attention_behind_stats()


# One tensor in several places: dO is Q, so that dK's product and dV's have the same operand.
def gradients_rounded_first():
    """dK and Stats of types narrower than the buffers that hold them, transposed: each is rounded to its own type first."""
    g = Graph("attention_backward_rounded_first", "f16")
    q, k = g.tensor("Q", [1, 3, 32, 16]), g.tensor("K", [1, 1, 32, 16])
    g.tensor("dK", data_type="f8e5m2")
    g.tensor("Stats", data_type="bf16")
    o = {"O": g.tensor("O", [1, 3, 32, 16]), "dO": g.tensor("dO", [1, 3, 32, 16]), "Stats": g.tensor("S", [1, 3, 32, 1], data_type="f32")}
    g.node("sdpa_backward", {"Q": q, "K": k, "V": k, **o}, {"dK": "dK"}, attn_scale=0.25)
    g.output(g.transpose("dK", "y", [2, 0, 3, 1]))
    g.node("sdpa", {"Q": q, "K": k, "V": k}, {"O": "Y", "Stats": "Stats"}, attn_scale=0.25, generate_stats=True)
    g.output("Y")
    g.output(g.transpose("Stats", "stats", [2, 1, 0, 3]), data_type="f32")


gradients_rounded_first()
# In one kernel, as the estimate of the expansion, which plain scores of so few rows take, knows no such score.
attention_backward("f32_softcap", b=1, hq=2, hk=2, sq=70, skv=90, d=32, dv=32, io="f32", attn_scale=0.18, causal_mask=True, softcap=20.0)
attention_backward("f32_odd_softcap", b=1, hq=2, hk=2, sq=20, skv=35, d=20, dv=12, io="f32", attn_scale=0.2, softcap=20.0)


def attention_backward_of_itself(name, b=1, heads=2, q=64, kv=42, d=16, sequences=3):
    g = Graph("attention_backward_of_itself_" + name, "bf16")
    x, y = g.tensor("X", [b, heads, q, d]), g.tensor("Y", [b, 1, kv, d])
    ports = {"Q": x, "K": y, "V": y, "O": x, "dO": x, "Stats": g.tensor("Stats", [b, heads, q, 1], data_type="f32")}
    for port, dim, data_type in offsets(sequences) if sequences else []:
        ports[port] = g.tensor(port, dim, data_type=data_type)
    outputs = {port: port for port in ["dQ", "dK", "dV"]}
    for port in outputs:
        g.output(port)
    g.node("sdpa_backward", ports, outputs, attn_scale=-0.5)


attention_backward_of_itself("packed")
attention_backward_of_itself("plain", sequences=0)


def attention_backward_f8(b=1, heads=2, q=70, kv=90, d=32):
    g = Graph("attention_backward_f8", "f8e4m3")
    of = {"Q": q, "K": kv, "V": kv, "O": q, "dO": q}
    types = {"O": "bf16", "dO": "f8e5m2"}
    ports = {port: g.tensor(port, [b, heads, rows, d], data_type=types.get(port, "f8e4m3")) for port, rows in of.items()}
    ports["Stats"] = g.tensor("Stats", [b, heads, q, 1], data_type="f32")
    outputs = {port: port for port in ["dQ", "dK", "dV"]}
    g.output(*outputs, data_type="bf16")
    g.node("sdpa_backward", ports, outputs, attn_scale=0.18, causal_mask=True)


attention_backward_f8()


# Parts of the queries that a tile of keys meets, whose dK and dV a kernel behind adds up: of the heads that share one of K, which parts
# divide anywhere; of bounds, under which some parts have nothing; wide heads, by warps, dQ in one order, of one gradient.
attention_backward("parts", b=1, hk=1, sq=260, skv=70, d=64, dv=64, attn_scale=0.125)
attention_backward("parts_causal", b=1, hk=1, sq=200, skv=150, d=128, dv=128, io="f16", attn_scale=0.09, causal_mask=True, softcap=5.0)
attention_backward("parts_window", b=1, hk=2, sq=330, skv=330, d=64, dv=40, attn_scale=0.125, left_bound=120, right_bound=100,
                   deterministic=True)
attention_backward("parts_lengths", hq=2, hk=1, sq=260, skv=140, d=96, dv=96, attn_scale=0.1, padding_mask=True, stored=True,
                   causal_mask_bottom_right=True, lengths={"SEQ_LEN_Q": 150, "SEQ_LEN_KV": 110})
attention_backward("parts_wide", b=1, hq=2, hk=1, sq=200, skv=80, d=192, dv=128, attn_scale=0.07, layout="bshd")
attention_backward("parts_dbias", b=1, hq=2, hk=2, sq=260, skv=70, d=64, dv=64, attn_scale=0.125, dbias=True,
                   inputs=[("Bias", [1, 2, 1, 70], None)])


# The one weight is 1. Scores without an error (keys are integers) and results in f32 show what the
# kernel's is off by (evaluate_pointwise.cpp).
def attention_one_key():
    g = Graph("attention_one_key", "bf16")
    q = g.tensor("Q", [1, 2, 15, 16])
    k = g.pointwise("identity", "K", g.tensor("K_integers", [1, 2, 1, 16], data_type="i32"))
    g.tensor("K", data_type="bf16")
    v = g.tensor("V", [1, 2, 1, 16])
    g.output("O", data_type="f32")
    g.node("sdpa", {"Q": q, "K": k, "V": v}, {"O": "O"}, attn_scale=1.5)


attention_one_key()
