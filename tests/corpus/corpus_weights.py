"""Rows that share weights as long as they are."""
from corpus_graph import Graph


def long_rows(name, op, rows, dim, bias):
    """f32 weights over several axes: blocks walk over the rows and keep them."""
    g = Graph(name, "bf16")
    scale = [1, *dim]
    inputs = {"X": g.tensor("x", [rows, *dim]), "SCALE": g.tensor("scale", scale, data_type="f32"),
              "epsilon": g.value("epsilon", 1e-5)}
    if bias:
        inputs["BIAS"] = g.tensor("bias", scale, data_type="f32")
    g.node(op, inputs, {"Y": "y", "INV_VARIANCE": "inv_variance"})
    g.output("y")
    g.output("inv_variance", data_type="f32")


def long_rows_in_place():
    """The residual stream in place, its norm, and rows that do not fill the last walk."""
    g = Graph("weights_of_long_rows_in_place", "f16")
    g.tensor("x", [67, 20480])
    g.tensor("residual", [67, 20480])
    g.pointwise("add", "h", "x", "residual")
    for t in ("scale", "bias"):
        g.tensor(t, [1, 20480], data_type="f32")
    g.node("layernorm", {"X": "h", "SCALE": "scale", "BIAS": "bias", "epsilon": g.value("epsilon", 1e-5)}, "y")
    g.output("h", alias="x")
    g.output("y")


long_rows("weights_of_long_rows", "layernorm", 66, [40, 512], True)
long_rows("weights_of_long_rows_no_bias", "rmsnorm", 70, [40960], False)
long_rows_in_place()
