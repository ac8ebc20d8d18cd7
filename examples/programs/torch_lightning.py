"""Trains with Lightning on all TPU cores of a host."""

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = torch.rand((count, 1, 28, 28), generator=generator)
    images[torch.arange(count), 0, 2 * labels + 4] += 2.0
    return TensorDataset(images, labels)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def training_step(self, batch, batch_index):
        images, labels = batch
        loss = F.cross_entropy(self.layers(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_index):
        images, labels = batch
        accuracy = (self.layers(images).argmax(dim=1) == labels).float().mean()
        self.log("accuracy", accuracy, sync_dist=True)

    def on_train_start(self):
        self.print(f"{self.trainer.world_size} processes, {self.device}, {type(self.trainer.strategy).__name__}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


if __name__ == "__main__":
    L.seed_everything(1)
    trainer = L.Trainer(accelerator="tpu", devices=8, max_epochs=2, enable_progress_bar=False, logger=False)
    train_loader = DataLoader(make_data(2048, 0), batch_size=32, shuffle=True, drop_last=True)
    val_loader = DataLoader(make_data(512, 1), batch_size=32)
    trainer.fit(Classifier(), train_loader, val_loader)
    print(f"accuracy {trainer.callback_metrics['accuracy']:.4f}")
