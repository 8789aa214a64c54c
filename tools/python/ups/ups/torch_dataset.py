"""A loader as a dataset of PyTorch, which is imported only when this is asked for."""

_kind = None


def torch_dataset(loader):
    """A torch.utils.data.IterableDataset of dicts of tensors: values, parameters, samples, starts, tasks, dt.

        DataLoader(torch_dataset(loader), batch_size=None)

    reads in this process, by the library's own threads, and is the fast way; num_workers > 0 works too, each worker taking
    its share of every epoch. A loader is also iterable by itself, without PyTorch's DataLoader. Workers that are made anew
    each epoch know nothing of the last one: tell them with loader.set_epoch, or use persistent_workers=True.
    """
    global _kind
    if _kind is None:
        import torch
        from torch.utils.data import IterableDataset

        class UpsDataset(IterableDataset):
            def __init__(self, of):
                self.loader = of

            def __len__(self):
                return len(self.loader)

            def __iter__(self):
                for batch in self.loader:
                    yield {
                        "values": torch.from_dlpack(batch),
                        "parameters": torch.from_numpy(batch.parameters),
                        "samples": torch.from_numpy(batch.samples),
                        "starts": torch.from_numpy(batch.starts),
                        "tasks": torch.from_numpy(batch.tasks),
                        "dt": torch.from_numpy(batch.dt),
                    }

            def __reduce__(self):
                return (torch_dataset, (self.loader,))

        _kind = UpsDataset
    return _kind(loader)
