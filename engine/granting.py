"""Whether a call that is to be asked about has been granted already, by an answer or for later.

Looked at only where the verdict is ask. Reads the answers to the call's own question, and what was
granted in its run; feeds the step, and what is written into a question.
"""

from typing import TYPE_CHECKING

from laneway.journal.fold import ApprovalView, GrantView
from laneway.policies.grants import Demands, covers

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall
    from laneway.journal.fold import RunView
    from laneway.policies.questions import Question
    from laneway.policies.rules import Policy


def question_of(call: "LiveCall") -> ApprovalView:
    """The last question about a call, with all that was answered, kept already or not."""
    assert call.approval is not None
    asked = call.scheduler.log.view.approvals[call.approval].asked
    return ApprovalView(asked, None, call.answers)


def answered(call: "LiveCall", digest: str) -> str:
    """Who has granted exactly what would run now, as the rule that lets it pass; empty for nobody.

    Args:
        call: that would be asked about.
        digest: of what would run now.
    """
    question = question_of(call)
    enough = len(question.counted) >= question.needed
    return approved_by(question) if enough and question.digest == digest else ""


def approved_by(question: ApprovalView) -> str:
    """The rule that lets a call pass once enough people have granted it."""
    names = [one.by for one in question.counted if one.by]
    return f"approved by {' and '.join(names)}" if names else "approved"


def granted(call: "LiveCall", wanted: Demands) -> str:
    """The grant that spares a call its question, as the rule that lets it pass; empty for none."""
    tool = call.tool
    if tool is None or wanted.each_time or wanted.approvers > 1:
        return ""
    for one in standing(call.scheduler.log.view):
        if covers(one.grant, tool.spec.name, tool.spec.version, call.arguments):
            by = f" by {one.by}" if one.by else ""
            what = "this run" if one.grant.pattern is None else "such calls in this run"
            return f"granted{by} for {what} ({one.id})"
    return ""


def standing(view: "RunView") -> list[GrantView]:
    """The grants of a run that have not been revoked."""
    return [one for one in view.grants.values() if one.revoked is None]


def wanted_by(policy: "Policy", questions: "list[Question]", call: "LiveCall") -> Demands:
    """What is wanted of the answer about a call, by the policy and by the tool itself.

    Args:
        policy: that wants it to be asked about.
        questions: about the call and, if it is part of a plan, about that.
        call: as it would run.
    """
    assert call.tool is not None
    spec = call.tool.spec
    wanted = Demands(spec.approvers) if spec.approval else Demands()
    for question in questions:
        wanted |= policy.demands(question)
    return wanted
