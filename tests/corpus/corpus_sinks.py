"""Gradients of attention's sink token."""
from corpus_attention import attention_backward

# The sink's gradient: kernels behind Delta; beside all that the kernel of the others does; alone; of one key, whose exponentials have the
# dims of the sink's.
sink_gradients = ["dQ", "dK", "dV", "dSINK_TOKEN"]


def sink_of(heads, data_type="f32"):
    return [("SINK_TOKEN", [1, heads, 1, 1], data_type)]


attention_backward("sink_gradient", attn_scale=0.125, causal_mask=True, hq=2, hk=1, sq=70, skv=70, d=64, dv=64, inputs=sink_of(2), of=sink_gradients)
attention_backward("sink_gradient_window", b=3, attn_scale=0.09, hq=2, hk=2, sq=75, skv=75, d=32, dv=32, io="f16", left_bound=20,
                   inputs=sink_of(2, None), of=sink_gradients)
attention_backward("sink_gradient_padding", attn_scale=0.25, hq=2, hk=1, sq=72, skv=140, d=32, dv=40, padding_mask=True, stored=True,
                   lengths={"SEQ_LEN_Q": 40, "SEQ_LEN_KV": 90}, inputs=sink_of(2), of=sink_gradients)
attention_backward("sink_gradient_bias", attn_scale=0.2, hq=2, hk=2, sq=65, skv=67, d=24, dv=24, softcap=3.0, dbias=True,
                   inputs=[("Bias", [1, 2, 65, 67], None), *sink_of(2)], of=sink_gradients)
attention_backward("sink_gradient_alone", attn_scale=0.125, sq=40, skv=50, d=64, dv=64, hq=2, hk=2, inputs=sink_of(2), of=["dSINK_TOKEN"])
attention_backward("sink_gradient_of_values", attn_scale=0.125, sq=40, skv=50, d=64, dv=64, hq=2, hk=2, inputs=sink_of(2), of=["dV", "dSINK_TOKEN"])
attention_backward("sink_gradient_one_key", b=1, attn_scale=0.125, sq=70, skv=1, d=64, dv=64, hq=2, hk=2, inputs=sink_of(2), of=sink_gradients)
attention_backward("sink_gradient_one_row", b=1, attn_scale=0.125, sq=1, skv=70, d=64, dv=64, hq=2, hk=2, inputs=sink_of(2), of=sink_gradients)
attention_backward("sink_gradient_f32", attn_scale=0.2, sq=66, skv=35, d=40, dv=40, io="f32", causal_mask=True, hq=2, hk=1, inputs=sink_of(2), of=sink_gradients)
