#!/usr/bin/python3
"""A small network learns digits with DistributedDataParallel; the service averages gradients.

Only the import and attach() belong to gradpool:

    gradpool serve &
    gradpool run --workers 2 --endpoint gradpool://127.0.0.1:7077 python3 digits.py --epochs 5

The script draws its images, so that no download is needed: glyphs of 5 by 7 points, shifted, with
random brightness and noise. Each rank trains on its share of the same images. Ranks start from the
same parameters, because DDP copies the parameters of rank 0 to all ranks."""
import argparse
import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import gradpool.ddp

SIDE = 10
NOISE = 0.15
SEED = 1
GLYPHS = '''
.###. ..#.. .###. .###. ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
'''


def draw(count, seed):
    """Returns (images, digits): float32 (count, 1, SIDE, SIDE) and int64, the same for the same
    seed."""
    random = torch.Generator().manual_seed(seed)
    rows = [line.split() for line in GLYPHS.split('\n') if line]
    glyphs = torch.tensor([[[float(point == '#') for point in row[digit]] for row in rows]
                           for digit in range(10)])
    _, height, width = glyphs.shape
    digits = torch.randint(10, (count,), generator=random)
    tops = torch.randint(SIDE - height + 1, (count,), generator=random).tolist()
    lefts = torch.randint(SIDE - width + 1, (count,), generator=random).tolist()
    brightness = 0.6 + 0.4 * torch.rand(count, generator=random)
    images = NOISE * torch.randn(count, 1, SIDE, SIDE, generator=random)
    for image, digit, top, left, bright in zip(images, digits, tops, lefts, brightness):
        image[0, top:top + height, left:left + width] += bright * glyphs[digit]
    return images, digits


def make_model():
    """Maps (n, 1, SIDE, SIDE) to (n, 10), with 6,058 parameters in 8 tensors."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train_epoch(model, optimizer, images, digits, batch_size, seed):
    """Trains for an epoch, and returns this rank's mean loss."""
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))
    losses = []
    for part in order.split(batch_size):
        optimizer.zero_grad()
        loss = cross_entropy(model(images[part]), digits[part])
        loss.backward()         # returns when the service has averaged every gradient
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy_of(model, images, digits):
    return (model(images).argmax(1) == digits).double().mean().item()


def digest(model):
    """Returns a hash of the parameters. Two ranks with the same bits have the same hash."""
    values = torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


def count(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text}, expected 1 or more')
    return int(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--epochs', type=count, default=5)
    parser.add_argument('--batch-size', type=count, default=16, help='images a rank and step')
    parser.add_argument('--images', type=count, default=4000, help='in all')
    parser.add_argument('--lr', type=float, default=0.005)
    return parser.parse_args()


def share_of(images, digits, rank, workers):
    """Returns every workers-th image, so that all ranks have the same number of images. A rank with
    more steps than the other ranks would wait for these ranks until its deadline."""
    whole = len(digits) // workers * workers
    if not whole:
        sys.exit(f'digits.py: --images {len(digits)}, expected at least one for each of the '
                 f'{workers} ranks')
    return images[rank:whole:workers], digits[rank:whole:workers]


def train(net, model, options):
    rank, workers = dist.get_rank(), dist.get_world_size()
    images, digits = share_of(*draw(options.images, SEED), rank, workers)
    held_out = draw(1000, SEED + 1)
    optimizer = torch.optim.Adam(net.parameters(), options.lr)
    for epoch in range(1, options.epochs + 1):
        loss = train_epoch(model, optimizer, images, digits, options.batch_size,
                           epoch * workers + rank)
        if rank == 0:
            print(f'epoch {epoch}: loss {loss:.3f}, accuracy {accuracy_of(net, *held_out):.3f}',
                  flush=True)


def main():
    options = parse()
    torch.manual_seed(SEED)
    # DDP needs this process group at set-up; gradients do not use the group
    dist.init_process_group('gloo')
    net = make_model()
    model = nn.parallel.DistributedDataParallel(net)
    gradpool.ddp.attach(model)
    train(net, model, options)
    print(f'parameters {digest(net)}', flush=True)


if __name__ == '__main__':
    main()
