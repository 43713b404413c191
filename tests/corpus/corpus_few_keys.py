"""Gradients of few keys: dQ that the kernel stores, since one tile of keys has all of it; tiles of 64 keys."""
from corpus_attention import attention_backward

# Windows of 49 with the gradient of their bias, which all share; a bias in boxes; several tiles of queries for 64 keys, and heads that
# share them.
attention_backward("few_keys", b=9, hq=3, hk=3, sq=49, skv=49, d=32, dv=32, attn_scale=0.18, dbias=True,
                   inputs=[("Bias", [1, 3, 49, 49], None)])
attention_backward("few_keys_boxes", b=2, hq=3, hk=3, sq=64, skv=64, d=32, dv=32, attn_scale=0.18, dbias=True,
                   inputs=[("Bias", [2, 3, 64, 64], None)])
attention_backward("few_keys_80", b=5, hq=2, hk=2, sq=24, skv=24, d=80, dv=80, attn_scale=0.11, causal_mask=True, layout="bshd")
attention_backward("few_keys_causal", b=3, sq=150, skv=64, hq=4, hk=2, d=64, dv=48, attn_scale=0.125, causal_mask=True, layout="bshd")
attention_backward("few_keys_bottom_right", b=3, sq=30, skv=60, hq=2, hk=2, d=24, dv=64, io="f16", attn_scale=0.2,
                   causal_mask_bottom_right=True)
# With lengths, and more queries than keys at the bottom right, some rows meet no tile: they begin as zeros.
attention_backward("few_keys_lengths", b=4, sq=40, skv=50, hq=2, hk=1, d=32, dv=32, attn_scale=0.18, padding_mask=True, stored=True,
                   lengths={"SEQ_LEN_Q": 20, "SEQ_LEN_KV": 20})
attention_backward("few_keys_unseen", b=2, sq=90, skv=40, hq=2, hk=2, d=32, dv=32, attn_scale=0.18, causal_mask_bottom_right=True)
# Of one tile of 128 keys: an odd number of blocks of eight elements, two boxes of columns, parts of the queries.
attention_backward("stored_dq", b=2, sq=150, skv=100, hq=3, hk=3, d=40, dv=40, attn_scale=0.16)
attention_backward("stored_dq_128", b=2, sq=90, skv=128, hq=4, hk=2, d=128, dv=104, io="f16", attn_scale=0.09, causal_mask=True,
                   layout="bshd")
attention_backward("stored_dq_parts", b=1, sq=600, skv=77, hq=2, hk=2, d=64, dv=64, attn_scale=0.125)
attention_backward("stored_dq_dropout", b=2, sq=100, skv=72, hq=2, hk=2, d=64, dv=64, attn_scale=0.125, dropout_probability=0.2,
                   causal_mask=True, inputs=[("Seed", [1], "i64"), ("Offset", [1], "i64")])
# Of one tile of 129 to 256 keys, narrow heads: of three consumers, whose last key is the first, the 16th, or the 64th of its block; of
# two with two blocks each, whose last block is almost empty, or whole.
attention_backward("stored_dq_129", b=2, sq=65, skv=129, hq=2, hk=2, d=64, dv=64, attn_scale=0.125)
attention_backward("stored_dq_144", b=2, sq=144, skv=144, hq=3, hk=3, d=32, dv=32, attn_scale=0.18, layout="bshd")
attention_backward("stored_dq_192", b=2, sq=70, skv=192, hq=4, hk=2, d=40, dv=24, io="f16", attn_scale=0.16)
attention_backward("stored_dq_197", b=2, sq=197, skv=197, hq=2, hk=2, d=64, dv=64, attn_scale=0.125, layout="bshd")
attention_backward("stored_dq_256", b=1, sq=64, skv=256, hq=2, hk=1, d=64, dv=64, io="f16", attn_scale=0.125)
# The same with parts of the queries, biases in boxes or not, whose gradients are wanted, dropout, and what is cut.
attention_backward("stored_dq_160_parts", b=1, sq=600, skv=160, hq=2, hk=1, d=64, dv=64, attn_scale=0.125)
attention_backward("stored_dq_144_dbias", b=3, sq=144, skv=144, hq=2, hk=2, d=32, dv=32, attn_scale=0.18, dbias=True,
                   inputs=[("Bias", [1, 2, 144, 144], None)])
attention_backward("stored_dq_200_dbias", b=2, sq=90, skv=200, hq=2, hk=2, d=64, dv=48, attn_scale=0.125, dbias=True,
                   inputs=[("Bias", [2, 2, 90, 200], None)])
attention_backward("stored_dq_180_bias", b=2, sq=100, skv=180, hq=2, hk=2, d=64, dv=64, attn_scale=0.125,
                   inputs=[("Bias", [1, 1, 1, 180], "f32")])
attention_backward("stored_dq_230_dropout", b=2, sq=100, skv=230, hq=2, hk=2, d=64, dv=64, attn_scale=0.125, dropout_probability=0.2,
                   softcap=6.0, inputs=[("Seed", [1], "i64"), ("Offset", [1], "i64")])
attention_backward("stored_dq_150_causal", b=2, sq=150, skv=150, hq=2, hk=2, d=32, dv=32, attn_scale=0.18, causal_mask=True, layout="bshd")
attention_backward("stored_dq_250_causal", b=1, sq=220, skv=250, hq=2, hk=1, d=64, dv=64, attn_scale=0.125, causal_mask_bottom_right=True)
# More heads of K than SMs: entries in turn.
attention_backward("stored_dq_turns", b=70, sq=66, skv=130, hq=4, hk=2, d=16, dv=16, attn_scale=0.25, layout="bshd")
attention_backward("stored_dq_turns_bias", b=67, sq=10, skv=200, hq=3, hk=3, d=16, dv=24, attn_scale=0.25,
                   inputs=[("Bias", [1, 1, 1, 200], "f32")])
# Wide heads, whose tile of 64 to 96 keys two consumers share.
attention_backward("stored_dq_wide", b=2, sq=150, skv=77, hq=2, hk=1, d=160, dv=136, attn_scale=0.08, layout="bshd")
attention_backward("stored_dq_wide_causal", b=2, sq=90, skv=60, hq=2, hk=2, d=200, dv=200, io="f16", attn_scale=0.07, causal_mask=True,
                   softcap=4.0)
