"""The paper's six tables of text generation, as printed: five metrics for two noises at four epsilons."""

from __future__ import annotations

from dataclasses import dataclass

METRICS = ("bleu", "nist", "meteor", "rouge_l", "cider")
DELTA = 1e-5
Cells = tuple[float, float, float, float, float]  # in the order of METRICS; BLEU in per cent


@dataclass(frozen=True)
class PrintedTable:
    """One table; the noises are `gaussian` and `gamma`, which the paper calls PLRV-O."""

    task: str  # e2e or dart
    model: str  # as the hub names it
    label: str  # in the paper's source
    gaussian: dict[float, Cells]
    gamma: dict[float, Cells]

    @property
    def name(self) -> str:
        return f"table-{self.task}-{self.model}"

    def cells(self, noise: str, epsilon: float) -> dict[str, float]:
        """The metrics of one line, by name."""
        lines = {"gaussian": self.gaussian, "gamma": self.gamma}[noise]
        return dict(zip(METRICS, lines[epsilon], strict=True))


TABLES = (
    PrintedTable(
        "e2e",
        "distilgpt2",
        "tab:distilgpt2_halfwidth",
        gaussian={
            0.2: (25.29, 0.3424, 0.2304, 0.4925, 0.5883),
            0.5: (36.73, 1.0098, 0.2829, 0.5733, 0.7638),
            1.0: (50.55, 3.5693, 0.3225, 0.6159, 1.0901),
            2.5: (59.82, 5.6407, 0.3646, 0.6589, 1.5164),
        },
        gamma={
            0.2: (58.50, 5.3100, 0.3578, 0.6534, 1.3862),
            0.5: (64.16, 7.4953, 0.3944, 0.6681, 1.8563),
            1.0: (63.63, 7.2425, 0.3894, 0.6675, 1.7844),
            2.5: (64.94, 8.1061, 0.4140, 0.6790, 2.0404),
        },
    ),
    PrintedTable(
        "e2e",
        "gpt2",
        "tab:gpt2_halfwidth",
        gaussian={
            0.2: (32.82, 0.6487, 0.2733, 0.5642, 0.7618),
            0.5: (42.72, 1.9037, 0.3037, 0.5887, 0.9699),
            1.0: (52.11, 3.7071, 0.3313, 0.6281, 1.2369),
            2.5: (59.02, 5.6853, 0.3602, 0.6520, 1.5457),
        },
        gamma={
            0.2: (60.21, 5.7860, 0.3688, 0.6628, 1.5285),
            0.5: (62.98, 7.5666, 0.4025, 0.6767, 1.9438),
            1.0: (62.73, 7.0415, 0.3928, 0.6750, 1.8164),
            2.5: (65.27, 8.3764, 0.4360, 0.6858, 2.2612),
        },
    ),
    PrintedTable(
        "e2e",
        "gpt2-medium",
        "tab:gpt2-medium_halfwidth",
        gaussian={
            0.2: (37.38, 1.4594, 0.2870, 0.5662, 0.8094),
            0.5: (52.96, 3.8638, 0.3447, 0.6206, 1.2907),
            1.0: (59.00, 6.0868, 0.3709, 0.6452, 1.6023),
            2.5: (62.22, 8.0526, 0.4063, 0.6684, 1.9906),
        },
        gamma={
            0.2: (58.79, 6.1828, 0.3792, 0.6580, 1.6706),
            0.5: (64.47, 8.3884, 0.4295, 0.6789, 2.2338),
            1.0: (63.67, 8.3098, 0.4220, 0.6785, 2.1590),
            2.5: (66.04, 8.4342, 0.4423, 0.6922, 2.3728),
        },
    ),
    PrintedTable(
        "e2e",
        "gpt2-large",
        "tab:gpt2-large_halfwidth",
        gaussian={
            0.2: (39.25, 1.9838, 0.2940, 0.5892, 0.9242),
            0.5: (52.51, 3.9813, 0.3525, 0.6421, 1.1923),
            1.0: (53.59, 4.6533, 0.3317, 0.6191, 1.2980),
            2.5: (62.24, 8.0916, 0.4118, 0.6661, 2.0894),
        },
        gamma={
            0.2: (60.71, 6.4304, 0.3743, 0.6501, 1.6485),
            0.5: (65.02, 8.4223, 0.4226, 0.6740, 2.0988),
            1.0: (64.21, 8.3605, 0.4179, 0.6676, 2.0811),
            2.5: (67.37, 8.6457, 0.4496, 0.6952, 2.3657),
        },
    ),
    PrintedTable(
        "dart",
        "distilgpt2",
        "tab:distilgpt2_dart",
        gaussian={
            0.2: (3.55, 0.4290, 0.0467, 0.1023, 0.2909),
            0.5: (12.47, 2.1889, 0.1300, 0.2416, 0.5654),
            1.0: (17.48, 2.4004, 0.1838, 0.3291, 0.8345),
            2.5: (22.26, 3.9404, 0.2156, 0.3816, 1.0045),
        },
        gamma={
            0.2: (23.29, 3.8109, 0.2292, 0.4040, 1.1161),
            0.5: (28.42, 4.0702, 0.2701, 0.4779, 1.5073),
            1.0: (27.89, 4.1538, 0.2658, 0.4688, 1.4639),
            2.5: (30.83, 4.5753, 0.2841, 0.5036, 1.6856),
        },
    ),
    PrintedTable(
        "dart",
        "gpt2",
        "tab:gpt2_dart",
        gaussian={
            0.2: (6.95, 0.0761, 0.1293, 0.2625, 0.6065),
            0.5: (20.31, 2.0213, 0.2234, 0.4222, 1.0794),
            1.0: (25.31, 3.3642, 0.2549, 0.4631, 1.3252),
            2.5: (29.32, 4.7652, 0.2772, 0.4900, 1.5449),
        },
        gamma={
            0.2: (25.95, 2.5579, 0.2699, 0.4911, 1.4419),
            0.5: (30.76, 2.9106, 0.2891, 0.5123, 1.6783),
            1.0: (31.38, 3.2593, 0.3029, 0.5212, 1.7453),
            2.5: (33.66, 4.7260, 0.3142, 0.5407, 1.9371),
        },
    ),
)
