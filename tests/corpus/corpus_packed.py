"""Gradients of packed sequences whose tiles of keys several thread blocks share."""
from corpus_attention import attention_backward, offsets

# Parts of the queries that a tile of keys meets, of which some sequences have none: of bounds, wide heads, dQ in one order.
attention_backward("packed_parts_causal", b=1, hq=4, hk=1, sq=260, skv=260, d=64, dv=64, attn_scale=0.125, causal_mask=True,
                   layout="bshd", inputs=offsets(3))
attention_backward("packed_parts_window", b=1, hq=8, hk=1, sq=300, skv=230, d=128, dv=128, io="f16", attn_scale=0.09,
                   causal_mask_bottom_right=True, left_bound=70, inputs=offsets(4))
attention_backward("packed_parts_wide", b=1, hq=4, hk=1, sq=200, skv=200, d=192, dv=128, attn_scale=0.07, layout="bshd",
                   inputs=offsets(2))
attention_backward("packed_parts_one_order", b=1, hq=8, hk=1, sq=150, skv=150, d=40, dv=40, attn_scale=0.15, causal_mask=True,
                   deterministic=True, inputs=offsets(2))
