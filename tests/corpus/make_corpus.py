#!/usr/bin/env python3
"""Writes the corpus: graphs that models have, small enough for the float64 reference.

Run it after a change to the corpus_*.py files; the documents are committed, so that tests need no
Python. Documents that no file here makes stay as they are.
"""
import pathlib

import corpus_across  # noqa: F401 (each adds its graphs)
import corpus_attention  # noqa: F401
import corpus_beside  # noqa: F401
import corpus_biases  # noqa: F401
import corpus_calls  # noqa: F401
import corpus_chained  # noqa: F401
import corpus_computed_biases  # noqa: F401
import corpus_constants  # noqa: F401
import corpus_convolution  # noqa: F401
import corpus_depthwise  # noqa: F401
import corpus_doubles  # noqa: F401
import corpus_edges  # noqa: F401
import corpus_f8_caches  # noqa: F401
import corpus_few_filters  # noqa: F401
import corpus_few_keys  # noqa: F401
import corpus_few_rows  # noqa: F401
import corpus_first_layers  # noqa: F401
import corpus_gradients  # noqa: F401
import corpus_groups  # noqa: F401
import corpus_heads  # noqa: F401
import corpus_joined  # noqa: F401
import corpus_lines  # noqa: F401
import corpus_masks  # noqa: F401
import corpus_narrow  # noqa: F401
import corpus_networks  # noqa: F401
import corpus_packed  # noqa: F401
import corpus_permuted  # noqa: F401
import corpus_pooled  # noqa: F401
import corpus_random  # noqa: F401
import corpus_regions  # noqa: F401
import corpus_results_of_bytes  # noqa: F401
import corpus_rows  # noqa: F401
import corpus_segments  # noqa: F401
import corpus_shapes  # noqa: F401
import corpus_shared_parts  # noqa: F401
import corpus_short_k  # noqa: F401
import corpus_sinks  # noqa: F401
import corpus_stored  # noqa: F401
import corpus_strided  # noqa: F401
import corpus_tokens  # noqa: F401
import corpus_unconverted  # noqa: F401
import corpus_weights  # noqa: F401
import corpus_written_out  # noqa: F401
from corpus_graph import ALL

if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    names = [g.name for g in ALL]
    assert len(names) == len(set(names)), "two graphs of one name"
    for g in ALL:
        (folder / f"{g.name}.json").write_text(g.text(), encoding="utf-8")
    print(f"{len(ALL)} graphs")
