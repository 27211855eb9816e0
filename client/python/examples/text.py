#!/usr/bin/python3
"""A small transformer learns to write a text character by character: torch.distributed with the
backend `gradpool`, and DistributedDataParallel on this backend.

    gradpool serve &
    gradpool run --workers 2 --endpoint gradpool://127.0.0.1:7077 python3 text.py --steps 300

The text is a license file of Debian; --text names another file. Each rank reads other places of the
text. At the end rank 0 prints a text that the model has written."""
import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import gradpool.distributed     # noqa: the import registers the backend

TEXT = '/usr/share/common-licenses/GPL-3'
SEED = 1


class Writer(nn.Module):
    """Maps (n, length) characters to (n, length, characters): scores of the next character."""

    def __init__(self, characters, length, width, heads, layers):
        super().__init__()
        self.length = length
        self.character = nn.Embedding(characters, width)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.scores = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, characters))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.register_buffer('later', later, persistent=False)

    def forward(self, given):
        count = given.shape[1]
        values = self.character(given) + self.place[:count]
        return self.scores(self.layers(values, mask=self.later[:count, :count]))


def read(path, length):
    """Returns (characters, text): the sorted alphabet, and the text as numbers of characters."""
    try:
        text = pathlib.Path(path).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f'{path} cannot be read ({error}); name another text with '
                         '--text') from None
    if len(text) <= length + 1:
        raise SystemExit(f'{path}: {len(text)} characters, expected more than {length + 1}; name '
                         'a longer text with --text, or a smaller --length')
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    return characters, torch.tensor([numbers[character] for character in text])


def batches(text, length, batch_size, random):
    """Yields (given, wanted) without end, each (batch_size, length); wanted is shifted by a
    character."""
    steps = torch.arange(length + 1)
    while True:
        starts = torch.randint(len(text) - length, (batch_size, 1), generator=random)
        piece = text[starts + steps]
        yield piece[:, :-1], piece[:, 1:]


@torch.no_grad()
def write(net, text, count, random):
    """Returns the text's first character and `count` generated characters, as numbers."""
    written = text[:1].view(1, 1)
    for _ in range(count):
        scores = net(written[:, -net.length:])[:, -1]
        chosen = torch.multinomial(scores.softmax(1), 1, generator=random)
        written = torch.cat([written, chosen], 1)
    return written[0]


def mean_of_ranks(value):
    """Returns the mean of a value over all ranks. The service also runs this collective."""
    tensor = torch.tensor(value)
    dist.all_reduce(tensor)
    return tensor.item() / dist.get_world_size()


def train(model, options, parts):
    """Trains with Adam. The rate first rises, and then falls until the end. Prints the mean loss of
    all ranks."""
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, options.steps)
    total, count = 0.0, 0
    for step, (given, wanted) in zip(range(1, options.steps + 1), parts):
        optimizer.zero_grad()
        loss = cross_entropy(model(given).flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
        total, count = total + loss.item(), count + 1
        if step % options.print_every == 0 or step == options.steps:
            mean = mean_of_ranks(total / count)
            if dist.get_rank() == 0:
                print(f'step {step}: loss {mean:.3f}', flush=True)
            total, count = 0.0, 0


def count(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text}, expected 1 or more')
    return int(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--text', default=TEXT)
    parser.add_argument('--steps', type=count, default=300)
    parser.add_argument('--print-every', type=count, default=20)
    parser.add_argument('--batch-size', type=count, default=8, help='pieces a rank and step')
    parser.add_argument('--length', type=count, default=48, help='characters of a piece')
    parser.add_argument('--width', type=count, default=48)
    parser.add_argument('--heads', type=count, default=4)
    parser.add_argument('--layers', type=count, default=2)
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--write', type=int, default=200, help='characters to show at the end')
    return parser.parse_args()


def main():
    options = parse()
    # an error of the text is raised before this rank waits for others
    characters, text = read(options.text, options.length)
    torch.manual_seed(SEED)
    dist.init_process_group('gradpool')
    net = Writer(len(characters), options.length, options.width, options.heads, options.layers)
    model = nn.parallel.DistributedDataParallel(net)
    random = torch.Generator().manual_seed(SEED + dist.get_rank())
    train(model, options, batches(text, options.length, options.batch_size, random))
    if dist.get_rank() == 0:
        net.eval()
        print(''.join(characters[number] for number in write(net, text, options.write, random)))


if __name__ == '__main__':
    main()
