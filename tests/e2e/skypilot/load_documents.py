"""Run by the isolated interpreter of SkyPilot: is each document one that SkyPilot takes?

Standard input: one JSON object a line, `{"name", "text", "secrets"}`. Standard output: one JSON
object a line, `{"name", "problems", "tasks", "execution"}`. Nothing is launched and no server runs.
"""

import io
import json
import sys


def problems_of(text, secrets):
    """What SkyPilot says against the documents, by each way in; and what it made of them."""
    import sky
    import yaml
    from sky.utils import common_utils, dag_utils, schemas

    found, dag = [], None
    header, *tasks = yaml.safe_load_all(text)
    for task in tasks:
        name = task.get("name")
        try:
            common_utils.validate_schema(task, schemas.get_task_schema(), "schema: ")
        except Exception as error:
            found.append(f"schema of {name}: {error}")
        try:
            sky.Task.from_yaml_config(dict(task), secrets_overrides=secrets)
        except Exception as error:
            found.append(f"task {name}: {type(error).__name__}: {error}")
    try:
        # What the bridge calls: a pipeline or a job group, by what the header says.
        dag = dag_utils.load_dag_from_yaml_str(text, secrets_overrides=secrets)
        again = dag_utils.load_dag_from_yaml_str(dag_utils.dump_dag_to_yaml_str(dag))
        if [task.name for task in again.tasks] != [task.name for task in dag.tasks]:
            found.append("what is sent to the server is not what was read")
        if dag.name != header["name"]:
            found.append(f"the job is called {dag.name}")
    except Exception as error:
        found.append(f"documents: {type(error).__name__}: {error}")
    if header["execution"] == "serial":
        try:
            dag_utils.load_chain_dag_from_yaml_str(text, secrets_overrides=secrets)
        except Exception as error:
            found.append(f"chain: {type(error).__name__}: {error}")
    return found, dag


def main():
    answers, sys.stdout = sys.stdout, io.StringIO()  # SkyPilot prints
    for line in sys.stdin:
        asked = json.loads(line)
        problems, dag = problems_of(asked["text"], list(asked["secrets"].items()) or None)
        answer = {
            "name": asked["name"],
            "problems": problems,
            "tasks": [task.name for task in dag.tasks] if dag is not None else [],
            "nodes": [task.num_nodes for task in dag.tasks] if dag is not None else [],
            "group": bool(dag.is_job_group()) if dag is not None else False,
        }
        answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
