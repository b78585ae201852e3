# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 for 224x224 images as ONNX, with seeded weights: plain torch modules, exported.

`python -m bench.models.resnet OUT.onnx`. Layers and shapes are those of the paper (He et al., "Deep Residual Learning
for Image Recognition", 2015, table 1) and of torchvision. BatchNorm has running statistics that do something, scaled so
that activations neither vanish nor explode. Importing this module imports nothing large; make() needs torch, onnx and
onnxscript.

The graph: image (f32[batch, 3, 224, 224]) to scores (f32[batch, 1000]).
"""

import argparse
from pathlib import Path

SEED = 20151210
FLOP = 3.63e9  # of one image: two for each of 1.81e9 products
INPUT, OUTPUT = "image", "scores"


def build():
    """The torch module, in inference mode."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.downsample = None
            if stride != 1 or channels != outputs:
                conv = nn.Conv2d(channels, outputs, 1, stride, bias=False)
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

        def forward(self, x):
            same = x if self.downsample is None else self.downsample(x)
            y = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(self.bn2(self.conv2(y)) + same)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            blocks, channels = [], 64
            for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                blocks += [Block(channels, outputs, stride), Block(outputs, outputs, 1)]
                channels = outputs
            self.blocks = nn.Sequential(*blocks)
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(512, 1000)

        def forward(self, x):
            x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
            return self.fc(torch.flatten(self.avgpool(self.blocks(x)), 1))

    generator = torch.Generator().manual_seed(SEED)

    def draw(tensor, mean, deviation):
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * deviation + mean)

    model = ResNet()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                draw(module.weight, 0, (2 / module.weight[0].numel()) ** 0.5)
            elif isinstance(module, nn.Linear):
                draw(module.weight, 0, 0.05)
                draw(module.bias, 0, 0.1)
            elif isinstance(module, nn.BatchNorm2d):
                draw(module.weight, 0.8, 0.1)
                draw(module.bias, 0, 0.1)
                draw(module.running_mean, 0, 0.2)
                draw(module.running_var, 0, 0.2)
                module.running_var.copy_(1 + module.running_var.abs())
    return model.eval()


def inputs(batch=1, seed=0):
    """Seeded inputs by name."""
    import numpy

    rng = numpy.random.default_rng(seed)
    return {INPUT: rng.standard_normal((batch, 3, 224, 224)).astype(numpy.float32)}


def make(path, opset=18):
    """Writes the model to `path`, the batch dynamic."""
    import torch

    example = torch.from_numpy(inputs(2)[INPUT])
    program = torch.onnx.export(
        build(),
        (example,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        verbose=False,
        input_names=[INPUT],
        output_names=[OUTPUT],
        opset_version=opset,
    )
    program.save(str(path), external_data=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    make(parser.parse_args().path)


if __name__ == "__main__":
    main()
