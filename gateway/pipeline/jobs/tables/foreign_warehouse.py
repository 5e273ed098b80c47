"""Whether a warehouse is this job's, and its sources read what they have read before. Message numbers of other queues
would say that messages have landed which never did, or that others have not, and so would those of another journal. It
is reported before anything is read."""

from __future__ import annotations

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.object_manifest import ObjectManifest

NOT_KNOWN = "of other queues the manifest cannot say which messages have landed"


def check_warehouse(job: Job, manifest: Manifest | ObjectManifest, journals: dict[str, str]) -> None:
    """Raise WrongOption if another job has landed here, if a source has other queues than those that have landed, or if
    the journal of its queue manager is another one."""
    last = manifest.last
    if last is None:
        return
    if last.job != job.name:
        raise WrongOption(
            f"the tables of {job.warehouse} are those of job {last.job!r}: {job.name!r} would land the same messages "
            f"once more, and begin gold tables anew. Give it a warehouse of its own, or write `name: {last.job}`"
        )
    for each in job.inputs:
        before = last.reads.get(each.stream, each.source.queue)
        if before != each.source.queue:
            raise WrongOption(
                f"source {each.name!r} has landed {before} so far, and now reads {each.source.queue}: {NOT_KNOWN}. "
                "Give it the queues of before, and the others a source with a name of their own"
            )
        journal = journals.get(each.stream)
        if journal is not None and journal != last.journals.get(each.stream, journal):
            raise WrongOption(
                f"{each.source.address} is not the queue manager whose messages have landed as {each.stream}: it was "
                "made anew, or is another one, and gives numbers again that others had. Nothing was read. Give the "
                "source another name in `sources`, with the group of before, so that it begins at the group's cursor"
            )
    if job.source is not None and job.inputs[0].stream not in manifest.landed.intervals:
        before = ", ".join(sorted(stream.partition(":")[2] for stream in manifest.landed.intervals))
        raise WrongOption(
            f"this job has landed {before} so far, and now reads {job.source.queue}: {NOT_KNOWN}. Run it as it was "
            "until `mqgate pipeline run --once` has ended; then write `sources`, one with the queues and the group of "
            "before, and one with the others"
        )
