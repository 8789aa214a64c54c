/* Clang includes it for declarations that cuRAND makes of its own; NVIDIA's wheels of the compiler come without. */
