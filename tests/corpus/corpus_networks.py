"""Layers and blocks of networks: projections, convolutions, norms, experts, whole blocks."""
from corpus_graph import Graph, channels_last


def linear_bias_gelu(m, k, n, io):
    g = Graph(f"linear_bias_gelu_{m}x{k}x{n}_{io}", io)
    g.tensor("x", [1, m, k])
    g.tensor("w", [1, k, n])
    g.tensor("bias", [1, 1, n])
    g.linear("x", "w", "bias", "pre")
    g.pointwise("gelu_approx_tanh_fwd", "y", "pre")
    g.output("y")


for m, k, n, io in [(64, 96, 128, "bf16"), (63, 65, 127, "f16"), (129, 64, 65, "f32"),
                    (127, 128, 129, "bf16"), (1, 257, 31, "f16"), (17, 1, 19, "f32")]:
    linear_bias_gelu(m, k, n, io)


def mlp_gradients():
    """A layer with gelu and its gradients: one of its nodes lies between two products."""
    m, k, n = 48, 64, 96
    g = Graph("mlp_gradients", "bf16")
    g.tensor("x", [1, m, k])
    g.tensor("w_1", [1, k, n])
    g.tensor("b_1", [1, 1, n])
    g.tensor("w_2", [1, n, k])
    g.tensor("dy", [1, m, k])
    g.linear("x", "w_1", "b_1", "pre")
    g.tensor("pre", data_type="bf16")
    g.pointwise("gelu_approx_tanh_fwd", "hidden", "pre")
    g.tensor("hidden", data_type="bf16")
    g.matmul("hidden", "w_2", "y")
    g.transpose("w_2", "w_2_t", [0, 2, 1])
    g.matmul("dy", "w_2_t", "d_hidden")
    g.pointwise("gelu_approx_tanh_bwd", "d_pre", "d_hidden", "pre")
    g.tensor("d_pre", data_type="bf16")
    g.reduction("add", "d_pre", "d_b_1", [1, 1, n])
    g.transpose("x", "x_t", [0, 2, 1])
    g.matmul("x_t", "d_pre", "d_w_1")
    g.output("y", "d_w_1", "d_b_1")


mlp_gradients()


def swiglu():
    g = Graph("swiglu", "bf16")
    g.tensor("x", [1, 48, 64])
    for w in ("w_gate", "w_up"):
        g.tensor(w, [1, 64, 96], stride=[6144, 1, 64])
    g.tensor("w_down", [1, 96, 64])
    g.matmul("x", "w_gate", "gate")
    g.matmul("x", "w_up", "up")
    g.pointwise("swish_fwd", "gate_act", "gate")
    g.pointwise("mul", "hidden", "gate_act", "up")
    g.tensor("hidden", data_type="bf16")
    g.matmul("hidden", "w_down", "y")
    g.output("y")


swiglu()


def swiglu_backward():
    g = Graph("swiglu_backward", "f16")
    for t in ("gate", "up", "dy"):
        g.tensor(t, [1, 40, 72])
    g.pointwise("swish_fwd", "act", "gate")
    g.pointwise("mul", "d_up", "dy", "act")
    g.pointwise("mul", "d_act", "dy", "up")
    g.pointwise("swish_bwd", "d_gate", "d_act", "gate")
    g.output("d_up", "d_gate")


swiglu_backward()


def qkv_projection():
    """One product, three views of it: queries, keys and values by head."""
    b, s, h, d = 2, 24, 4, 16
    g = Graph("qkv_projection", "bf16")
    g.tensor("x", [1, b * s, 64])
    g.tensor("w", [1, 64, 3 * h * d])
    g.tensor("bias", [1, 1, 3 * h * d])
    g.linear("x", "w", "bias", "qkv")
    g.reshape("qkv", "split", [b, s, 3, h, d])
    for i, name in enumerate("qkv"):
        g.slice("split", name + "_part", [0, 0, i, 0, 0], [b, s, i + 1, h, d])
        g.reshape(name + "_part", name + "_rows", [b, s, h, d])
        g.transpose(name + "_rows", name, [0, 2, 1, 3])
        g.output(name)


qkv_projection()


def classifier():
    """Softmax cross-entropy, forward and backward, over one-hot labels that are made here."""
    n, c = 33, 130
    g = Graph("softmax_cross_entropy", "f32")
    g.tensor("logits", [n, c])
    g.tensor("labels", [n, 1], data_type="i32")
    g.tensor("classes", [1, c])
    g.pointwise("gen_index", "index", "classes", axis=1)
    g.tensor("index", data_type="i32")
    g.pointwise("cmp_eq", "one_hot", "index", "labels")
    g.node("softmax", {"X": "logits"}, {"Y": "p", "Stats": "log_sum"}, axis=-1)
    g.pointwise("mul", "picked", "logits", "one_hot")
    g.reduction("add", "picked", "label_logit", [n, 1])
    g.pointwise("sub", "loss", "log_sum", "label_logit")
    g.reduction("avg", "loss", "mean_loss", [1, 1])
    g.pointwise("sub", "difference", "p", "one_hot")
    g.pointwise("div", "d_logits", "difference", g.value("count", float(n)))
    g.output("loss", "mean_loss", "d_logits")


classifier()


# ---- convolution networks


def conv_bias_relu(io, last):
    g = Graph(f"conv_bias_relu_{'nhwc' if last else 'nchw'}_{io}", io)
    x, w = [2, 16, 14, 14], [24, 16, 3, 3]
    g.tensor("x", x, **({"stride": channels_last(x)} if last else {}))
    g.tensor("w", w, **({"stride": channels_last(w)} if last else {}))
    g.tensor("bias", [1, 24, 1, 1])
    g.conv("x", "w", "product", pre_padding=[1, 1], post_padding=[1, 1])
    g.pointwise("add", "pre", "product", "bias")
    g.pointwise("relu_fwd", "y", "pre")
    g.output("y", **({"stride": channels_last([2, 24, 14, 14])} if last else {}))


conv_bias_relu("f16", True)
conv_bias_relu("f32", False)


def residual_block():
    g = Graph("residual_block", "f16")
    g.tensor("x", [1, 32, 10, 10])
    g.tensor("w_skip", [48, 32, 1, 1])
    inputs = {"x": 32, "a1": 48}
    for i, (x, channels) in enumerate(inputs.items(), 1):
        stride = [2, 2] if i == 1 else [1, 1]
        g.tensor(f"w{i}", [48, channels, 3, 3])
        g.conv(x, f"w{i}", f"c{i}", pre_padding=[1, 1], post_padding=[1, 1], stride=stride)
        statistics = {}
        for t in ("MEAN", "INV_VARIANCE", "SCALE", "BIAS"):
            statistics[t] = g.tensor(f"{t.lower()}{i}", [1, 48, 1, 1], data_type="f32")
        g.node("batchnorm_inference", {"X": f"c{i}", **statistics}, f"n{i}")
        if i == 1:
            g.pointwise("relu_fwd", "a1", "n1")
    g.conv("x", "w_skip", "skip", stride=[2, 2])
    g.pointwise("add", "sum", "n2", "skip")
    g.pointwise("relu_fwd", "y", "sum")
    g.output("y")


residual_block()


def depthwise_separable():
    g = Graph("depthwise_separable", "f32", compute="tf32")
    g.tensor("x", [1, 12, 9, 11])
    g.tensor("w_depth", [12, 1, 3, 3])
    g.tensor("w_point", [20, 12, 1, 1])
    g.conv("x", "w_depth", "depth", groups=12, pre_padding=[2, 2], post_padding=[2, 2],
           dilation=[2, 2])
    g.pointwise("relu_fwd", "act", "depth", relu_upper_clip=6.0)
    g.conv("act", "w_point", "y")
    g.output("y")


depthwise_separable()


def conv_gradients():
    g = Graph("conv_gradients", "bf16")
    attributes = dict(pre_padding=[1, 1], post_padding=[0, 1], stride=[2, 1], groups=2)
    g.tensor("x", [2, 8, 9, 7])
    g.tensor("w", [12, 4, 3, 3])
    g.tensor("dy", [2, 12, 4, 7])
    g.tensor("dx", [2, 8, 9, 7], output=True)
    g.tensor("dw", [12, 4, 3, 3], output=True, data_type="f32")
    g.node("conv_dgrad", {"DY": "dy", "W": "w"}, {"DX": "dx"}, **attributes)
    g.node("conv_wgrad", {"DY": "dy", "X": "x"}, {"DW": "dw"}, **attributes)


conv_gradients()


def conv_1d_3d():
    g = Graph("conv_1d_3d", "f16")
    g.tensor("audio", [2, 6, 63])
    g.tensor("w1", [10, 6, 5])
    g.conv("audio", "w1", "y1", pre_padding=[4], post_padding=[0], mode="convolution")
    g.tensor("video", [1, 3, 5, 6, 7])
    g.tensor("w3", [8, 3, 3, 3, 3])
    g.conv("video", "w3", "y3", pre_padding=[1, 1, 1], post_padding=[1, 1, 1])
    g.output("y1", "y3")


conv_1d_3d()


def groupnorm_silu_conv():
    g = Graph("groupnorm_silu_conv", "f16")
    g.tensor("x", [2, 16, 8, 8])
    g.tensor("scale", [1, 16, 1, 1], data_type="f32")
    g.tensor("bias", [1, 16, 1, 1], data_type="f32")
    g.tensor("w", [16, 16, 3, 3])
    g.node("groupnorm", {"X": "x", "SCALE": "scale", "BIAS": "bias",
                         "epsilon": g.value("epsilon", 1e-5)}, "n", groups=4)
    g.pointwise("swish_fwd", "act", "n")
    g.tensor("act", data_type="f16")
    g.conv("act", "w", "c", pre_padding=[1, 1], post_padding=[1, 1])
    g.pointwise("add", "y", "c", "x")
    g.output("y")


groupnorm_silu_conv()


def pooling(mode, name, index=False, channels=3, last=False, **attributes):
    g = Graph("pooling_" + name, "f32")

    def image(name, h, w):
        c = channels
        order = {"stride": [h * w * c, 1, w * c, c]} if last else {}
        g.tensor(name, [2, c, h, w], **order)

    image("x", 9, 10)
    geometry = dict(mode=mode, window=[3, 2], stride=[2, 2], pre_padding=[1, 0],
                    post_padding=[1, 0], **attributes)
    outputs = {"Y": "y"}
    if index:
        outputs["Index"] = g.tensor("index", data_type="i8")
    g.node("resample", {"X": "x"}, outputs, **geometry)
    image("dy", 5, 5)
    image("dx", 9, 10)
    inputs = {"DY": "dy", **({"Index": "index"} if index else {"X": "x"})}
    g.node("resample_backward", inputs, {"DX": "dx"}, **geometry)
    g.output("y", "dx", *(["index"] if index else []))


pooling("maxpool", "max_index", index=True)
pooling("maxpool", "max_recomputed", padding_mode="zero_pad")
pooling("maxpool", "max_channels_last", channels=8, last=True)
pooling("avgpool_include_padding", "average_include", padding_mode="edge_val_pad")
pooling("avgpool_include_padding", "average_infinite", padding_mode="neg_inf_pad")
pooling("avgpool_exclude_padding", "average_exclude")


def pool_behind_convolution(name, io, chain):
    """The largest of four results, which the convolution stores in 16 bits; read by another convolution, too."""
    g = Graph("pool_behind_convolution" + name, io)

    def image(name, c, h, w, **more):
        g.tensor(name, [2, c, h, w], stride=[h * w * c, 1, w * c, c], **more)

    image("x", 32, 10, 12)
    g.tensor("w", [64, 32, 3, 3], stride=[288, 1, 96, 32])
    g.tensor("bias", [1, 64, 1, 1])
    g.conv("x", "w", "c", pre_padding=[1, 1], post_padding=[1, 1])
    g.pointwise("add", "s", "c", "bias")
    g.pointwise("relu_fwd", "r", "s")
    g.node("resample", {"X": "r"}, "p", mode="maxpool", window=[2, 2], stride=[2, 2], pre_padding=[0, 0], post_padding=[0, 0])
    if chain:
        g.tensor("v", [16, 64, 3, 3], stride=[576, 1, 192, 64])
        g.conv("p", "v", "y", pre_padding=[1, 1], post_padding=[1, 1])
        image("y", 16, 5, 6, output=True)
    else:
        image("p", 64, 5, 6, output=True)


pool_behind_convolution("", "bf16", False)
pool_behind_convolution("_chain", "f16", True)


def upsampling():
    g = Graph("upsampling", "f16")
    g.tensor("x", [1, 4, 7, 5])
    g.tensor("skip", [1, 4, 14, 15])
    g.tensor("near", [1, 4, 14, 15])
    g.tensor("linear", [1, 4, 14, 15])
    g.tensor("dy", [1, 4, 14, 15])
    g.tensor("dx", [1, 4, 7, 5], output=True)
    g.node("resample", {"X": "x"}, "near", mode="nearest")
    g.node("resample", {"X": "x"}, "linear", mode="bilinear")
    g.node("concatenate", {"IN_0": "near", "IN_1": "linear", "IN_2": "skip"}, "y", axis=1)
    g.node("resample_backward", {"DY": "dy"}, {"DX": "dx"}, mode="bilinear")
    g.output("y")


upsampling()

# ---- norms


def norm_training(op, x, scale, io, rms=False, groups=None):
    g = Graph(f"{op}_training_{io}", io)
    attributes = {"groups": groups} if groups else {}
    g.tensor("x", x)
    g.tensor("dy", x)
    g.tensor("scale", scale, data_type="f32")
    g.tensor("bias", scale, data_type="f32")
    statistics = {"INV_VARIANCE": "inv_variance"}
    if not rms:
        statistics["MEAN"] = "mean"
    forward = {} if op == "batchnorm" else {"forward_phase": "training", **attributes}
    g.node(op, {"X": "x", "SCALE": "scale", "BIAS": "bias", "epsilon": g.value("epsilon", 1e-5)},
           {"Y": "y", **statistics}, **forward)
    g.node(op + "_backward", {"DY": "dy", "X": "x", "SCALE": "scale", **statistics},
           {"DX": "dx", "DSCALE": "dscale", "DBIAS": "dbias"}, **attributes)
    g.output("y", "dx")
    g.output("dscale", "dbias", *statistics.values(), data_type="f32")


norm_training("layernorm", [37, 129], [1, 129], "bf16")
norm_training("rmsnorm", [3, 11, 96], [96], "f16", rms=True)
norm_training("adaptive_layernorm", [4, 9, 40], [4, 1, 40], "f32")
norm_training("instancenorm", [3, 5, 6, 7], [1, 5, 1, 1], "f32")
norm_training("groupnorm", [2, 12, 5, 5], [1, 12, 1, 1], "f16", groups=3)
norm_training("batchnorm", [6, 5, 4, 4], [1, 5, 1, 1], "f32")


def norm_across(io):
    """Channels of a group lie together in the result, and along a row in what is normalised."""
    g = Graph("groupnorm_written_across_" + io, io)
    g.tensor("x", [1, 27, 24])
    g.slice("x", "scale", [0, 0, 8], [1, 27, 9])
    g.node("groupnorm", {"X": "x", "SCALE": "scale", "epsilon": g.value("epsilon", 1e-3)}, "normal", groups=9)
    g.output(g.transpose("normal", "y", [2, 0, 1]))


norm_across("f64")
norm_across("bf16")


def batchnorm_running():
    g = Graph("batchnorm_running", "f16")
    g.tensor("x", [4, 6, 5, 5], stride=channels_last([4, 6, 5, 5]))
    per_channel = {}
    for t in ("SCALE", "BIAS", "PREV_RUNNING_MEAN", "PREV_RUNNING_VAR"):
        per_channel[t] = g.tensor(t.lower(), [1, 6, 1, 1], data_type="f32")
    outputs = {"Y": "y", "MEAN": "mean", "INV_VARIANCE": "inv_variance",
               "NEXT_RUNNING_MEAN": "next_mean", "NEXT_RUNNING_VAR": "next_var"}
    g.node("batchnorm", {"X": "x", **per_channel, "epsilon": g.value("epsilon", 1e-5),
                         "MOMENTUM": g.value("momentum", 0.1)}, outputs)
    g.output("y")
    g.output("mean", "inv_variance", "next_mean", "next_var", data_type="f32")


batchnorm_running()

# ---- whole blocks


def transformer_block():
    b, s, h, d, ff = 1, 32, 2, 16, 96
    width = h * d
    g = Graph("transformer_block", "bf16")
    g.tensor("x", [b, s, width])
    epsilon = g.value("epsilon", 1e-6)
    for i in (1, 2):
        g.tensor(f"norm{i}", [1, 1, width])
    g.tensor("w_qkv", [1, width, 3 * width])
    g.tensor("w_out", [1, width, width])
    g.tensor("w_gate", [1, width, ff])
    g.tensor("w_up", [1, width, ff])
    g.tensor("w_down", [1, ff, width])
    g.node("rmsnorm", {"X": "x", "SCALE": "norm1", "epsilon": epsilon}, "n1")
    g.tensor("n1", data_type="bf16")
    g.matmul("n1", "w_qkv", "qkv")
    g.tensor("qkv", data_type="bf16")
    g.reshape("qkv", "split", [b, s, 3, h, d])
    for i, name in enumerate("QKV"):
        g.slice("split", name + "_part", [0, 0, i, 0, 0], [b, s, i + 1, h, d])
        g.reshape(name + "_part", name + "_rows", [b, s, h, d])
        g.transpose(name + "_rows", name, [0, 2, 1, 3])
    g.node("sdpa", {"Q": "Q", "K": "K", "V": "V"}, {"O": "O"}, attn_scale=0.25, causal_mask=True)
    g.transpose("O", "O_rows", [0, 2, 1, 3])
    g.reshape("O_rows", "attended", [b, s, width])
    g.matmul("attended", "w_out", "projected")
    g.pointwise("add", "middle", "x", "projected")
    g.tensor("middle", data_type="bf16")
    g.node("rmsnorm", {"X": "middle", "SCALE": "norm2", "epsilon": epsilon}, "n2")
    g.tensor("n2", data_type="bf16")
    g.matmul("n2", "w_gate", "gate")
    g.matmul("n2", "w_up", "up")
    g.pointwise("swish_fwd", "act", "gate")
    g.pointwise("mul", "hidden", "act", "up")
    g.tensor("hidden", data_type="bf16")
    g.matmul("hidden", "w_down", "down")
    g.pointwise("add", "y", "middle", "down")
    g.output("y")


transformer_block()


def rotary_embedding():
    """Halves exchanged and negated: slices, a concatenation and two products."""
    g = Graph("rotary_embedding", "f16")
    g.tensor("x", [2, 3, 10, 16])
    for t in ("cosine", "sine"):
        g.tensor(t, [1, 1, 10, 16], data_type="f32")
    g.slice("x", "first", [0, 0, 0, 0], [2, 3, 10, 8])
    g.slice("x", "second", [0, 0, 0, 8], [2, 3, 10, 16])
    g.pointwise("neg", "negated", "second")
    g.node("concatenate", {"IN_0": "negated", "IN_1": "first"}, "rotated", axis=-1)
    g.pointwise("mul", "a", "x", "cosine")
    g.pointwise("mul", "b", "rotated", "sine")
    g.pointwise("add", "y", "a", "b")
    g.output("y")


rotary_embedding()


def moe_layer():
    tokens, experts, k, n, top = 24, 4, 32, 48, 2
    g = Graph("moe_layer", "bf16")
    g.tensor("tokens", [1, tokens, k])
    g.tensor("w_in", [experts, k, n])
    g.tensor("w_out", [experts, n, k])
    g.tensor("offsets", [experts + 1], data_type="i32")
    g.tensor("gather", [tokens * top], data_type="i32")
    g.tensor("scatter", [tokens * top], data_type="i32")
    g.node("moe_grouped_matmul",
           {"Token": "tokens", "Weight": "w_in", "FirstTokenOffset": "offsets",
            "TokenIndex": "gather"}, "hidden", mode="gather", top_k=top)
    g.pointwise("gelu_fwd", "act", "hidden")
    g.node("moe_grouped_matmul",
           {"Token": "act", "Weight": "w_out", "FirstTokenOffset": "offsets",
            "TokenIndex": "scatter"}, "rows", mode="scatter", top_k=top)
    g.reshape("rows", "by_choice", [tokens, top, k])
    g.reduction("add", "by_choice", "y", [tokens, 1, k])
    g.output("y")


moe_layer()


def post_norm_block():
    """BERT's order: bias, residual and norm behind each product, every result in 16 bits."""
    m, k = 40, 64
    g = Graph("post_norm_block", "bf16")
    g.tensor("x", [1, m, k])
    for i, (rows, columns) in enumerate([(k, k), (k, 2 * k), (2 * k, k)], 1):
        g.tensor(f"w{i}", [1, rows, columns])
        g.tensor(f"b{i}", [1, 1, columns])
    for i in (1, 2):
        g.tensor(f"scale{i}", [1, 1, k])
        g.tensor(f"shift{i}", [1, 1, k])
    epsilon = g.value("epsilon", 1e-5)
    for t in ("projected", "sum1", "n", "up", "act", "down", "sum2"):
        g.tensor(t, data_type="bf16")
    g.linear("x", "w1", "b1", "projected")
    g.pointwise("add", "sum1", "projected", "x")
    g.node("layernorm", {"X": "sum1", "SCALE": "scale1", "BIAS": "shift1", "epsilon": epsilon}, "n")
    g.linear("n", "w2", "b2", "up")
    g.pointwise("gelu_fwd", "act", "up")
    g.linear("act", "w3", "b3", "down")
    g.pointwise("add", "sum2", "down", "n")
    g.node("layernorm", {"X": "sum2", "SCALE": "scale2", "BIAS": "shift2", "epsilon": epsilon},
           {"Y": "y", "MEAN": "mean", "INV_VARIANCE": "inv_variance"}, forward_phase="training")
    g.output("y")
    g.output("mean", "inv_variance", data_type="f32")


post_norm_block()


def points():
    """PointNet's end: a 1 x 1 convolution and the largest of each image's points; a mean beside it."""
    for name, of in (("points_max", "max"), ("points_mean_first", "avg")):
        g = Graph(f"convolution_{name}", "bf16")
        stride = {"stride": [64 * 300, 1, 64 * 300, 64]} if of == "max" else {}
        g.tensor("x", [3, 64, 1, 300], **stride)
        g.tensor("w", [72, 64, 1, 1])
        g.tensor("bias", [1, 72, 1, 1])
        g.conv("x", "w", "c")
        g.pointwise("add", "biased", "c", "bias")
        g.pointwise("relu_fwd", "active", "biased")
        g.reduction(of, "active", "y", [3, 72, 1, 1])
        g.output("y")


points()
