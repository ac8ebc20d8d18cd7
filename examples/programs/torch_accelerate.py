"""Trains with Hugging Face Accelerate: `accelerate launch --tpu --num_processes 8 --main_main main ...`."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def make_data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 32, generator=generator)
    return TensorDataset(inputs, (inputs[:, :8].sum(dim=1) > 0).long())


def main():
    accelerator = Accelerator()
    set_seed(42)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train_loader = DataLoader(make_data(1024, 0), batch_size=16, shuffle=True, drop_last=True)
    test_loader = DataLoader(make_data(256, 1), batch_size=16)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=len(train_loader))

    for epoch in range(2):
        model.train()
        for inputs, labels in train_loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        correct = total = 0
        for inputs, labels in test_loader:
            with torch.no_grad():
                predictions = model(inputs).argmax(dim=-1)
            predictions, labels = accelerator.gather_for_metrics((predictions, labels))
            correct += (predictions == labels).sum().item()
            total += labels.numel()
        accelerator.print(f"epoch {epoch}: {accelerator.num_processes} processes, {correct / total:.4f} of {total}")
    accelerator.print(accelerator.state.distributed_type, accelerator.device)
    accelerator.wait_for_everyone()
    accelerator.save_model(accelerator.unwrap_model(model), "accelerate_model")


if __name__ == "__main__":
    main()
