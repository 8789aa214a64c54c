// clang up to 20 includes this header of the toolkit, which CUDA 13 no longer has. Kernels here have no textures.
