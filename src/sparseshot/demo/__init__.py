"""The whole workflow in a few minutes on a synthetic slide: sparse marks, several losses, one page.

::

    demo_folder  the plan and the files
    stages       the slide, the losses, the judgement, the page
    loss_worker  the process of one loss: training and prediction
    judging      scores against the ground truth
    charts       F1 over the threshold, exclusion during training
    demo_page    the page
"""

from sparseshot.demo.demo_folder import FULL, LOSSES, QUICK, DemoPlan
from sparseshot.demo.stages import Demo, run_demo

__all__ = ["FULL", "LOSSES", "QUICK", "Demo", "DemoPlan", "run_demo"]
