"""Attention row by row from its definition, every option; gradients by complex steps."""
import math

import numpy as np

from case import Graph, gradient, normal
from philox import uniform

NAN = math.nan


def press_slopes(heads):
    """Press et al.: geometric for powers of two, else those and every other one of twice as many."""
    def powers(n):
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    p = 1 << int(math.log2(heads))
    return powers(p) if p == heads else powers(p) + powers(2 * p)[0::2][:heads - p]


class Attention:
    def __init__(self, q, k, v, bias=None, lengths=None, sink=None, block_mask=None, seeds=None,
                 pages=None, offsets=None, **attributes):
        self.arrays = [q, k, v] + ([bias] if bias is not None else [])
        self.bias, self.lengths, self.sink = bias, lengths, sink
        self.block_mask, self.seeds, self.pages = block_mask, seeds, pages
        self.offsets = offsets  # of packed sequences
        self.attributes = attributes

    def place(self, side, token):
        """The sequence of a token, its number there, and how many it has."""
        for i, (first, end) in enumerate(zip(self.offsets[side], self.offsets[side][1:])):
            if first <= token < end:
                return i, token - first, end - first
        return None, 0, 0

    def sees(self, b, h, r, c, rows, columns):
        a = self.attributes
        if self.offsets is not None:
            of_row, r, rows = self.place(0, r)
            of_column, c, columns = self.place(1, c)
            if of_row is None or of_row != of_column:
                return False
        length_q, length_kv = rows, columns
        if a.get("padding_mask"):
            length_q, length_kv = self.lengths[0][b], self.lengths[1][b]
            if r >= length_q or c >= length_kv:
                return False
        elif self.pages is not None and self.lengths is not None and c >= self.lengths[1][b]:
            return False
        diagonal = r
        if a.get("causal_mask_bottom_right"):
            diagonal = r + length_kv - length_q
        if (a.get("causal_mask") or a.get("causal_mask_bottom_right")) and c > diagonal:
            return False
        if "left_bound" in a and not c > diagonal - a["left_bound"]:
            return False
        if "right_bound" in a and not c <= diagonal + a["right_bound"]:
            return False
        if self.block_mask is not None:
            byte = int(self.block_mask[b, h, r // 128, c // 1024])
            return bool(byte >> (c // 128 % 8) & 1)
        return True

    def unpaged(self, pool, table):
        b, pages = table.shape
        return np.array([np.concatenate([pool[table[i, p]] for p in range(pages)], axis=1)
                         for i in range(b)])

    def forward(self, q, k, v, bias=None, sink=None):
        a, sink = self.attributes, self.sink if sink is None else sink
        if self.pages is not None:
            k, v = self.unpaged(k, self.pages[0]), self.unpaged(v, self.pages[1])
        batch, heads, rows, _ = q.shape
        columns = k.shape[2]
        o = np.zeros((batch, heads, rows, v.shape[3]), dtype=q.dtype)
        stats = np.full((batch, heads, rows, 1), -np.inf, dtype=q.dtype)
        for b, h, r in np.ndindex(batch, heads, rows):
            kh, vh = h // (heads // k.shape[1]), h // (heads // v.shape[1])
            seen = [c for c in range(columns) if self.sees(b, h, r, c, rows, columns)]
            scores = []
            for c in seen:
                s = (q[b, h, r] * k[b, kh, c]).sum() * a.get("attn_scale", 1)
                if a.get("softcap"):
                    s = a["softcap"] * np.tanh(s / a["softcap"])
                if bias is not None:
                    s = s + np.broadcast_to(bias, (batch, heads, rows, columns))[b, h, r, c]
                if a.get("alibi_mask"):
                    at = (r, c) if self.offsets is None else [self.place(i, t)[1] for i, t in enumerate((r, c))]
                    s = s + press_slopes(heads)[h] * (at[1] - at[0])
                scores.append(s)
            masked_row = a.get("padding_mask") and r >= self.lengths[0][b]
            sinks = [sink[0, h, 0, 0]] if sink is not None and not masked_row else []
            if not seen:
                continue
            top = max(np.real(s) for s in scores + sinks)
            exps = [np.exp(s - top) for s in scores]
            total = sum(exps) + sum(np.exp(s - top) for s in sinks)
            stats[b, h, r] = top + np.log(total)
            for c, e in zip(seen, exps):
                p = e / total
                drop = a.get("dropout_probability", 0)
                if drop:
                    index = ((b * heads + h) * rows + r) * columns + c
                    p = p / (1 - drop) if uniform(*self.seeds, index) >= drop else 0
                o[b, h, r] += p * v[b, vh, c]
        return o, stats

    def inputs(self, g):
        batch = self.arrays[0].shape[0]
        ports = {n: g.input(n, a) for n, a in zip(("Q", "K", "V", "Bias"), self.arrays)}
        if self.lengths is not None:
            for n, a in zip(("SEQ_LEN_Q", "SEQ_LEN_KV"), self.lengths):
                ports[n] = g.input(n, np.reshape(a, (batch, 1, 1, 1)), "i32")
        if self.offsets is not None:
            for n, a in zip(("CU_SEQ_LEN_Q", "CU_SEQ_LEN_KV"), self.offsets):
                ports[n] = g.input(n, np.reshape(a, (-1, 1, 1, 1)), "i32")
        if self.seeds is not None:
            ports["Seed"] = g.input("Seed", np.array([self.seeds[0]]), "i64")
            ports["Offset"] = g.input("Offset", np.array([self.seeds[1]]), "i64")
        if self.pages is not None:
            for n, a in zip(("Page_table_K", "Page_table_V"), self.pages):
                ports[n] = g.input(n, a.reshape(batch, 1, -1, 1), "i32")
        if self.sink is not None:
            ports["SINK_TOKEN"] = g.input("SINK_TOKEN", self.sink)
        if self.block_mask is not None:
            ports["Block_mask"] = g.input("Block_mask", self.block_mask, "u8")
        return ports

    def cases(self, name, backward=True):
        o, stats = self.forward(*self.arrays)
        g = Graph(f"sdpa {name}")
        g.node("sdpa", self.inputs(g), {"O": g.output("O", o), "Stats": g.output("Stats", stats)},
               **self.attributes).done()
        if not backward:
            return
        d_o = normal(*o.shape)
        g = Graph(f"sdpa_backward {name}")
        ports = {**self.inputs(g), "O": g.input("O", o), "dO": g.input("dO", d_o),
                 "Stats": g.input("Stats", stats)}
        outputs = {}
        for i, n in enumerate(("dQ", "dK", "dV", "dBias")[:len(self.arrays)]):
            d = gradient(lambda *x: self.forward(*x)[0], self.arrays, i, d_o)
            outputs[n] = g.output(n, d)
        if self.sink is not None:
            d = gradient(lambda *x: self.forward(*x[:-1], sink=x[-1])[0], [*self.arrays, self.sink], -1, d_o)
            outputs["dSINK_TOKEN"] = g.output("dSINK_TOKEN", d)
        g.node("sdpa_backward", ports, outputs, **self.attributes).done()


def qkv(batch=2, heads=2, rows=4, columns=5, d=3, dv=2, key_heads=None, value_heads=None):
    key_heads, value_heads = key_heads or heads, value_heads or key_heads or heads
    return (normal(batch, heads, rows, d), normal(batch, key_heads, columns, d),
            normal(batch, value_heads, columns, dv))


def padded():
    q, k, v = qkv()
    lengths = [[3, 4], [2, 5]]
    k[0, :, 2:], v[0, :, 2:] = NAN, NAN  # not read, whatever they hold
    return Attention(q, k, v, lengths=lengths, padding_mask=True)


def cases():
    Attention(*qkv()).cases("plain")
    Attention(*qkv(), attn_scale=0.25).cases("scaled")
    Attention(*qkv(), causal_mask=True, attn_scale=0.5).cases("causal")
    Attention(*qkv(), causal_mask_bottom_right=True).cases("causal bottom right")
    Attention(*qkv(rows=5, columns=3), causal_mask_bottom_right=True).cases(
        "causal bottom right with masked rows")
    Attention(*qkv(rows=5, columns=6), left_bound=2, right_bound=1).cases("window")
    Attention(*qkv(rows=4, columns=4), left_bound=0).cases("fully masked")
    Attention(*qkv(heads=3), alibi_mask=True, causal_mask=True).cases("alibi of 3 heads")
    Attention(*qkv(batch=1, heads=4, rows=3, columns=3), alibi_mask=True).cases("alibi")
    Attention(*qkv(), softcap=0.75, attn_scale=2).cases("softcap")
    Attention(*qkv(), bias=normal(1, 2, 1, 5)).cases("bias broadcast")
    Attention(*qkv(), bias=normal(2, 2, 4, 5), softcap=1.5).cases("bias and softcap")
    Attention(*qkv(heads=4, key_heads=2)).cases("grouped queries")
    Attention(*qkv(heads=4, key_heads=1, value_heads=2)).cases("grouped, values apart")
    Attention(*qkv(), seeds=(1234567890123, 42), dropout_probability=0.375).cases("dropout")
    Attention(*qkv(), sink=normal(1, 2, 1, 1), causal_mask=True).cases("sink")
    padded().cases("padding")
    q, k, v = qkv(rows=3, columns=5)
    Attention(q, k, v, lengths=[[2, 3], [4, 3]], padding_mask=True,
              causal_mask_bottom_right=True).cases("padding, bottom right")
    q = normal(2, 2, 3, 4)
    pools = normal(5, 1, 2, 4), normal(5, 1, 2, 3)
    pages = np.array([[3, 0, 4], [1, 2, 2]]), np.array([[0, 1, 2], [4, 3, 0]])
    Attention(q, *pools, lengths=[[3, 3], [5, 6]], pages=pages, padding_mask=True).cases(
        "paged", backward=False)
    block_mask = np.array([0b10, 0b01], dtype=np.uint8).reshape(1, 1, 2, 1)
    rng_rows, columns = 130, 130
    q, k, v = normal(1, 1, rng_rows, 1), normal(1, 1, columns, 1), normal(1, 1, columns, 1)
    Attention(q, k, v, block_mask=block_mask).cases("block mask", backward=False)


def packed_cases():
    q, k, v = qkv(batch=1, rows=11, columns=12)
    offsets = [[1, 4, 4, 9], [0, 3, 5, 11]]  # tokens of no sequence at both ends, one sequence empty
    k[0, :, 11:], v[0, :, 11:] = NAN, NAN
    Attention(q, k, v, offsets=offsets, attn_scale=0.5).cases("packed")
    q, k, v = qkv(batch=1, rows=7, columns=9)
    offsets = [[0, 3, 7], [0, 5, 9]]
    Attention(q, k, v, offsets=offsets, causal_mask=True, alibi_mask=True).cases("packed, causal, alibi")
    Attention(q, k, v, offsets=offsets, causal_mask_bottom_right=True, left_bound=2).cases(
        "packed, bottom right, window")
    Attention(q, k, v, offsets=offsets, causal_mask_bottom_right=True, seeds=(99, 7),
              dropout_probability=0.25, sink=normal(1, 2, 1, 1)).cases("packed, dropout, sink")
    q, k, v = qkv()
    Attention(q, k, v, lengths=[[3, 4], [2, 5]], padding_mask=True, sink=normal(1, 2, 1, 1)).cases("padding, sink")
    Attention(*qkv(rows=5, columns=3), sink=normal(1, 2, 1, 1), causal_mask_bottom_right=True).cases("sink of masked rows")
