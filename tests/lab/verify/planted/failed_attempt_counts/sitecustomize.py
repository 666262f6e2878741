"""The files of each attempt of a task are committed, those of one that has failed as well."""

import os
import pickle
from pathlib import Path

from planting import plant


def noted(app_id, batch_id):
    return Path(os.environ["SPARKONCE_CRASH_FOLDER"], f"{app_id}-{batch_id}.files")


def change(target):
    table_writer_close, finish = target.TableWriter.close, target.DeltaTarget.finish
    reach = target.reach
    written = []

    def close(self):
        written[:] = table_writer_close(self)
        return written

    def note_and_reach(point, batch_id, app_id):
        if point is target.SinkPoint.FILE_WRITTEN:
            with noted(app_id, batch_id).open("ab") as file:
                pickle.dump(tuple(written), file)
        reach(point, batch_id, app_id)

    def finish_all(self, batch, plan, parts):
        with noted(batch.record.app_id, batch.record.batch_id).open("rb") as file:
            found = []
            while file.peek():
                found.append(pickle.load(file))
        finish(self, batch, plan, found)

    target.TableWriter.close, target.DeltaTarget.finish = close, finish_all
    target.reach = note_and_reach


plant("sparkonce.connectors.delta_sink.target", change)
