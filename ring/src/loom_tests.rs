//! Every interleaving of small scenes, explored by loom.
