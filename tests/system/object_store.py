"""A store that speaks S3's protocol and checks signatures (moto), for tests: run by an interpreter that has moto.

Prints a line of JSON: the credentials of a user. Then each line of standard input
is a command, ["put", KEY, PATH], answered with a line; its end ends the store.
"""
import json
import os
import sys

os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"  # the calls that make the user; all later ones must be signed
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

BUCKET = "data"


def main():
    answers, sys.stdout = sys.stdout, sys.stderr  # the server says that it starts
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]))
    server.start()
    at = {"endpoint_url": "http://127.0.0.1:%s" % sys.argv[1], "region_name": "us-east-1"}
    nobody = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    iam = boto3.client("iam", **at, **nobody)
    iam.create_user(UserName="reader")
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(allowed))
    user = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    store = boto3.client("s3", **at, **user)
    store.create_bucket(Bucket=BUCKET)
    print(json.dumps({"id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}), file=answers, flush=True)
    for line in sys.stdin:
        _, name, path = json.loads(line)
        with open(path, "rb") as file:
            store.put_object(Bucket=BUCKET, Key=name, Body=file.read())
        print("done", file=answers, flush=True)
    server.stop()


if __name__ == "__main__":
    main()
