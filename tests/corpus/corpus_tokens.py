"""Images whose pixels are read as rows, and tokens that are convolved."""
from corpus_graph import Graph, channels_last


def tokens_behind_images():
    """Channels last in memory: a causal convolution of tokens with its gate (Mamba), and the end of
    a ConvNeXt block, whose product's rows are the residual's pixels."""
    b, t, c = 2, 37, 24
    g = Graph("convolution_of_tokens_gated", "bf16")
    g.tensor("both", [b, t, 2 * c])
    g.tensor("w", [c, 1, 4])
    g.tensor("bias", [1, c, 1])
    g.transpose(g.slice("both", "x", [0, 0, 0], [b, t, c]), "channels", [0, 2, 1])
    g.conv("channels", "w", "c", pre_padding=[3], post_padding=[0], groups=c)
    g.pointwise("swish_fwd", "active", g.pointwise("add", "biased", "c", "bias"))
    g.pointwise("swish_fwd", "gate", g.slice("both", "z", [0, 0, c], [b, t, 2 * c]))
    g.pointwise("mul", "y", g.transpose("active", "tokens", [0, 2, 1]), "gate")
    g.output("y")
    n, h, k = 2, 5, 40
    g = Graph("matmul_of_pixels_residual", "bf16")
    last = {"stride": [h * h * k, 1, h * k, k]}
    g.tensor("rows", [n, h, h, 64])
    g.tensor("w", [1, 1, 64, k])
    g.tensor("bias", [1, 1, 1, k])
    g.tensor("scale", [1, k, 1, 1])
    g.tensor("image", [n, k, h, h], **last)
    g.linear("rows", "w", "bias", "product")
    g.pointwise("mul", "scaled", g.transpose("product", "turned", [0, 3, 1, 2]), "scale")
    g.pointwise("add", "y", "scaled", "image")
    g.output("y", **last)


tokens_behind_images()


def convnext_block(flat):
    """Pixels as PyTorch writes them: turned to rows for the norm and both layers, and back for the residual.
    `flat`: as its compiler does, the layers over all pixels as the rows of a matrix."""
    n, c, h, k = 2, 24, 9, 40
    last = {"stride": channels_last([n, c, h, h])}
    front = [] if flat else [1, 1]
    g = Graph("convnext_block" + ("_flat" if flat else ""), "bf16")
    g.tensor("x", [n, c, h, h], **last)
    g.tensor("w", [c, 1, 7, 7])
    g.tensor("bias", [1, c, 1, 1])
    for name in ("scale", "shift", "gamma"):
        g.tensor(name, [1, 1, 1, c])
    g.tensor("w_1", front + [c, k])
    g.tensor("b_1", front + [1, k])
    g.tensor("w_2", front + [k, c])
    g.tensor("b_2", front + [1, c])
    g.conv("x", "w", "around", pre_padding=[3, 3], post_padding=[3, 3], groups=c)
    g.transpose(g.pointwise("add", "biased", "around", "bias"), "pixels", [0, 2, 3, 1])
    g.node("layernorm", {"X": "pixels", "SCALE": "scale", "BIAS": "shift", "epsilon": g.value("epsilon", 1e-6)}, "normed")
    g.linear(g.reshape("normed", "rows", [n * h * h, c]) if flat else "normed", "w_1", "b_1", "wide")
    narrow = g.linear(g.pointwise("gelu_fwd", "active", "wide"), "w_2", "b_2", "narrow")
    if flat:
        narrow = g.reshape(narrow, "image", [n, h, h, c])
    g.transpose(g.pointwise("mul", "scaled", narrow, "gamma"), "turned", [0, 3, 1, 2])
    g.pointwise("add", "y", "x", "turned")
    g.output("y", **last)


convnext_block(flat=False)
convnext_block(flat=True)


def rolled_windows(name, io, b, r, w, c, by, phase="inference"):
    """A norm whose result is rolled along both axes of its image and cut into windows."""
    g = Graph("rolled_windows_" + name, io)
    n = r // w
    g.tensor("x", [b, r, r, c])
    for t in ("scale", "bias"):
        g.tensor(t, [1, 1, 1, c])
    g.value("epsilon", 1e-5)
    results = {"Y": "normal"}
    if phase == "training":
        results["MEAN"], results["INV_VARIANCE"] = "mean", "inv"
        g.output("mean", "inv", data_type="f32")
    y = g.node("layernorm", {"X": "x", "SCALE": "scale", "BIAS": "bias", "epsilon": "epsilon"}, results,
               forward_phase=phase)
    for axis in (1, 2):
        first, last = [0, 0, 0, 0], [b, r, r, c]
        first[axis] = last[axis] = by
        parts = {"IN_0": g.slice(y, f"behind_{axis}", first, [b, r, r, c]),
                 "IN_1": g.slice(y, f"before_{axis}", [0, 0, 0, 0], last)}
        y = g.node("concatenate", parts, f"rolled_{axis}", axis=axis)
    g.transpose(g.reshape(y, "split", [b, n, w, n, w, c]), "turned", [0, 1, 3, 2, 4, 5])
    g.output(g.reshape("turned", "windows", [b * n * n, w * w, c]))


rolled_windows("4", "bf16", 2, 8, 4, 16, 2)
rolled_windows("7", "f16", 1, 14, 7, 24, 3)
rolled_windows("training", "f32", 2, 6, 3, 16, 1, phase="training")
