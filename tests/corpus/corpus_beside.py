"""Results that lie, or are stored, as the product behind them wants it."""
from corpus_attention import attention
from corpus_graph import Graph


def products_beside_f32():
    """A norm between a product and a residual, and gradients that are joined, summed to those of a
    bias and multiplied twice."""
    g = Graph("norm_to_product_and_residual", "bf16")
    rows, k, n = 72, 64, 96
    g.tensor("x", [1, rows, k])
    g.tensor("scale", [1, 1, k])
    g.tensor("w1", [1, k, n])
    g.tensor("b1", [1, 1, n])
    g.tensor("w2", [1, n, k])
    g.node("rmsnorm", {"X": "x", "SCALE": "scale", "epsilon": g.value("epsilon", 1e-5)}, "norm")
    g.pointwise("relu_fwd", "active", g.linear("norm", "w1", "b1", "up"))
    g.pointwise("add", "y", g.matmul("active", "w2", "down"), "norm")
    g.output("y")
    g = Graph("gradients_of_joined_heads", "bf16")
    g.tensor("x", [rows, k])
    g.tensor("w", [k, 2 * k])
    for t in "ab":
        g.tensor("given_" + t, [rows, k])
        g.tensor("sine_" + t, [rows, k], data_type="f32")
        g.pointwise("mul", "part_" + t, "given_" + t, "sine_" + t)
    g.node("concatenate", {"IN_0": "part_a", "IN_1": "part_b"}, "d", axis=1)
    g.matmul(g.transpose("x", "columns", [1, 0]), "d", "dw")
    g.matmul("d", g.transpose("w", "turned", [1, 0]), "dx")
    g.reduction("add", "d", "db", [1, 2 * k])
    g.output("dw", "dx")
    g.output("db", data_type="f32")
    g = Graph("gradients_of_turned_heads", "bf16")  # of q, k and v, whose views are f32
    b, h, s, d = 2, 3, 9, 16
    g.tensor("x", [b * s, k])
    g.tensor("w", [3 * h * d, k])
    parts = []
    for t in "qkv":
        g.tensor("d" + t, [b, h, s, d])
        parts.append(g.reshape(g.transpose("d" + t, t + "_turned", [0, 2, 1, 3]), t, [b * s, h * d]))
    g.node("concatenate", {f"IN_{i}": t for i, t in enumerate(parts)}, "d", axis=1)
    g.matmul("d", "w", "dx")
    g.matmul(g.transpose("d", "columns", [1, 0]), "x", "dw")
    g.reduction("add", "d", "db", [1, 3 * h * d])
    g.output("dx", "dw")
    g.output("db", data_type="f32")


products_beside_f32()


def groups_before_convolution():
    """Groups of an image whose channels are last: so they stay for the convolution behind the norm."""
    n, c, h, k = 2, 40, 9, 16
    last = {"stride": [h * h * c, 1, h * c, c]}
    g = Graph("groupnorm_channels_last_convolution", "bf16")
    g.tensor("x", [n, c, h, h], **last)
    for t in ("scale", "shift"):
        g.tensor(t, [1, c, 1, 1])
    g.tensor("w", [k, c, 3, 3], stride=[9 * c, 1, 3 * c, c])
    g.node("groupnorm", {"X": "x", "SCALE": "scale", "BIAS": "shift",
                         "epsilon": g.value("epsilon", 1e-5)}, "norm", groups=4)
    g.conv(g.pointwise("swish_fwd", "active", "norm"), "w", "y", pre_padding=[1, 1], post_padding=[1, 1])
    g.output("y", stride=[h * h * k, 1, h * k, k])


groups_before_convolution()


def groups_between_convolutions():
    """Both convolutions of a residual block give their channels last, as the norm behind each reads them."""
    n, c, h = 2, 24, 9
    last = {"stride": [h * h * c, 1, h * c, c]}
    g = Graph("groupnorm_between_convolutions", "bf16")
    g.tensor("x", [n, c, h, h], **last)
    for t in ("scale", "shift"):
        g.tensor(t, [1, c, 1, 1])
    epsilon = g.value("epsilon", 1e-5)
    at = "x"
    for i in "ab":
        g.tensor("w" + i, [c, c, 3, 3], stride=[9 * c, 1, 3 * c, c])
        g.conv(at, "w" + i, "sums" + i, pre_padding=[1, 1], post_padding=[1, 1])
        g.tensor("sums" + i, data_type="bf16")
        g.node("groupnorm", {"X": "sums" + i, "SCALE": "scale", "BIAS": "shift", "epsilon": epsilon}, "norm" + i,
               groups=3)
        at = g.pointwise("swish_fwd", "active" + i, "norm" + i)
    g.pointwise("add", "y", at, "x")
    g.output("y", **last)


groups_between_convolutions()


def products_of_tiny_matrices():
    """So many that each is a sum for every element; columns in packs, or one by one."""
    for name, io, m, n, k, turned in [("f32", "f32", 4, 4, 4, False), ("bf16", "bf16", 3, 8, 5, True)]:
        g = Graph(f"products_of_tiny_matrices_{name}", io)
        b = 1030
        g.tensor("x", [b, m, k])
        g.tensor("w", [b, k, n], **({"stride": [k * n, 1, k]} if turned else {}))
        g.tensor("bias", [1, 1, n])
        g.pointwise("relu_fwd", "y", g.linear("x", "w", "bias", "sum"))
        g.output("y")


products_of_tiny_matrices()


def gradients_behind_an_activation():
    """Its gradient, in f32, is needed by the sums of a groupnorm's gradients and by what follows
    them: each kernel computes it for itself."""
    n, c, h = 2, 40, 9
    last = {"stride": [h * h * c, 1, h * c, c]}
    g = Graph("groupnorm_gradients_behind_swish", "bf16")
    for t in ("x", "dy"):
        g.tensor(t, [n, c, h, h], **last)
    g.tensor("scale", [1, c, 1, 1])
    for t in ("mean", "inv_variance"):
        g.tensor(t, [n, 4, 1, 1], data_type="f32")
    g.pointwise("swish_bwd", "active", "dy", "x")
    g.node("groupnorm_backward", {"DY": "active", "X": "x", "SCALE": "scale", "MEAN": "mean",
                                  "INV_VARIANCE": "inv_variance"},
           {"DX": "dx", "DSCALE": "dscale", "DBIAS": "dbias"}, groups=4)
    g.output("dx", **last)
    g.output("dscale", "dbias", data_type="f32")


gradients_behind_an_activation()


def functions_of_few_elements():
    """A gate of each channel, and steps of a state-space model: made by the kernels whose packs share them."""
    g = Graph("gate_of_channels", "bf16")
    g.tensor("x", [3, 10, 7, 8])
    g.tensor("gate", [3, 10, 1, 1])
    g.pointwise("mul", "y", "x", g.pointwise("sigmoid_fwd", "opened", "gate"))
    g.output("y")
    g = Graph("steps_of_states", "bf16")
    b, l, d, n = 2, 5, 24, 16
    for t, dim in (("dt", [b, l, d, 1]), ("shift", [1, 1, d, 1]), ("x", [b, l, d, 1]), ("b", [b, l, 1, n])):
        g.tensor(t, dim)
    g.tensor("a", [1, 1, d, n], data_type="f32")
    g.pointwise("softplus_fwd", "step", g.pointwise("add", "shifted", "dt", "shift"))
    g.pointwise("exp", "decay", g.pointwise("mul", "rate", "step", "a"))
    g.pointwise("mul", "driven", g.pointwise("mul", "input", "step", "b"), "x")
    g.output("decay", "driven")


functions_of_few_elements()


def gradients_over_channels(op, *image):
    """Those of the scale are sums of another kernel, which makes the normalised image again."""
    g = Graph(f"{op}_over_channels", "bf16")
    n, c, *pixels = image
    for t in ("dy", "x"):
        g.tensor(t, list(image))
    g.tensor("scale", [1, c, *(1 for _ in pixels)])
    ports = {"DY": "dy", "X": "x", "SCALE": "scale"}
    for port, t in (("MEAN", "mean"), ("INV_VARIANCE", "inv")):
        if op == "layernorm_backward" or t == "inv":
            ports[port] = g.tensor(t, [n, 1, *pixels], data_type="f32")
    gradients = {"DX": "dx", "DSCALE": "dscale"}
    if op == "layernorm_backward":
        gradients["DBIAS"] = "dbias"
    g.node(op, ports, gradients)
    g.output(*gradients.values())


gradients_over_channels("layernorm_backward", 3, 40, 9, 16)
gradients_over_channels("rmsnorm_backward", 2, 70, 33)


def gradients_behind_a_convolution():
    """Channels are summed up whatever their groups; what is normalised is known in groups alone."""
    n, c, h = 2, 24, 9
    last = {"stride": [h * h * c, 1, h * c, c]}
    g = Graph("groupnorm_gradients_behind_convolution", "bf16")
    for t in ("x", "pre", "dy"):
        g.tensor(t, [n, c, h, h], **last)
    g.tensor("w", [c, c, 3, 3], stride=[9 * c, 1, 3 * c, c])
    g.tensor("scale", [1, c, 1, 1])
    for t in ("mean", "inv_variance"):
        g.tensor(t, [n, 3, 1, 1], data_type="f32")
    g.tensor("above", [n, c, h, h], data_type="bf16")
    g.node("conv_dgrad", {"DY": "dy", "W": "w"}, {"DX": "above"}, pre_padding=[1, 1], post_padding=[1, 1])
    g.pointwise("swish_bwd", "active", "above", "pre")
    g.tensor("active", data_type="bf16")
    g.node("groupnorm_backward", {"DY": "active", "X": "x", "SCALE": "scale", "MEAN": "mean",
                                  "INV_VARIANCE": "inv_variance"},
           {"DX": "dx", "DSCALE": "dscale", "DBIAS": "dbias"}, groups=3)
    g.output("dx", **last)
    g.output("dscale", "dbias", data_type="f32")


gradients_behind_a_convolution()


# Heads of one row, of which several CTAs on an SM have one each.
attention("beside_each_other", b=7, hq=20, hk=20, sq=1, skv=300, d=32, dv=32, attn_scale=0.18)
attention("beside_each_other_grouped", b=5, hq=64, hk=32, sq=2, skv=300, d=48, dv=40, attn_scale=0.2, causal_mask_bottom_right=True)
# Clusters on most SMs, whose blocks join the parts of many rows, each some (attention_forward_cluster.cuh).
attention("cluster_many_rows", b=14, hq=20, hk=1, sq=2, skv=520, d=64, dv=64, attn_scale=0.125, causal_mask_bottom_right=True, stats=True,
          generate_stats=True)
