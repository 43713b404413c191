"""Philox4x32-10 in Python integers."""

MASK = 0xFFFFFFFF


def philox(key, counter):
    c = [counter & MASK, counter >> 32 & MASK, 0, 0]
    k = [key & MASK, key >> 32 & MASK]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


# Known answer of the Random123 distribution: all counter and key words zero.
assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def uniform(seed, offset, index):
    return (philox(seed, offset + index // 4)[index % 4] + 0.5) / 2**32
