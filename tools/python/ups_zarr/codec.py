"""ups.latent as a codec of zarr-python 3. An inner chunk of a cache is one trajectory: (1, time, token, dim) float16."""

from dataclasses import dataclass

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.common import parse_named_configuration
from zarr.registry import register_codec

from ups_zarr import latent


@dataclass(frozen=True)
class LatentCodec(ArrayBytesCodec):
    is_fixed_size = False

    version: int = latent.VERSION

    @classmethod
    def from_dict(cls, data):
        _, configuration = parse_named_configuration(data, "ups.latent", require_configuration=False)
        if configuration and configuration.get("version") != latent.VERSION:
            raise ValueError(f"ups.latent of {configuration} is not of version {latent.VERSION}: build the cache again")
        return cls()

    def to_dict(self):
        return {"name": "ups.latent", "configuration": {"version": self.version}}

    def validate(self, *, shape, dtype, chunk_grid):
        if dtype.to_native_dtype() != np.dtype(np.float16):
            raise ValueError(f"ups.latent stores float16, not {dtype}")
        if len(shape) != 4:
            raise ValueError(f"ups.latent stores (sample, time, token, dim), not {len(shape)} axes")

    def compute_encoded_size(self, input_byte_length, chunk_spec):
        raise NotImplementedError("what ups.latent makes of a trajectory depends on it")

    async def _decode_single(self, chunk_bytes, chunk_spec):
        if chunk_spec.shape[0] != 1:
            raise ValueError(f"ups.latent: a chunk holds one trajectory, not {chunk_spec.shape[0]}")
        frames = latent.decode(chunk_bytes.to_bytes(), chunk_spec.shape[1:])
        return chunk_spec.prototype.nd_buffer.from_numpy_array(frames[np.newaxis])

    async def _encode_single(self, chunk_array, chunk_spec):
        if chunk_spec.shape[0] != 1:
            raise ValueError(f"ups.latent: a chunk holds one trajectory, not {chunk_spec.shape[0]}")
        return chunk_spec.prototype.buffer.from_bytes(latent.encode(chunk_array.as_numpy_array()[0]))


register_codec("ups.latent", LatentCodec)
