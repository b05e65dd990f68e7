"""A store that speaks S3's protocol and checks signatures (moto), for tests: run by an interpreter that has moto.

Prints a line of JSON: the credentials of a user, and of a session with a token. Then each line of standard input
is a command, answered with a line of JSON: ["put", KEY, PATH], ["delete", KEY], ["list", PREFIX] with the keys,
["get", KEY] with the text, or ["uploads"] with the keys of unfinished uploads; its end ends the store.
"""
import json
import os
import sys

os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"  # the calls that make the user; all later ones must be signed
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
os.environ["S3_UPLOAD_PART_MIN_SIZE"] = "1"

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
    trusted = {"Version": "2012-10-17",
               "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}
    iam = boto3.client("iam", **at, **user)
    role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=json.dumps(trusted))["Role"]
    iam.put_role_policy(RoleName="reader", PolicyName="all", PolicyDocument=json.dumps(allowed))
    sts = boto3.client("sts", **at, **user)
    session = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="session")["Credentials"]
    print(json.dumps({"id": key["AccessKeyId"], "secret": key["SecretAccessKey"],
                      "session": {"AWS_ACCESS_KEY_ID": session["AccessKeyId"],
                                  "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
                                  "AWS_SESSION_TOKEN": session["SessionToken"]}}), file=answers, flush=True)
    for line in sys.stdin:
        what, name, *rest = [*json.loads(line), None]
        answer = "done"
        if what == "put":
            with open(rest[0], "rb") as file:
                store.put_object(Bucket=BUCKET, Key=name, Body=file.read())
        elif what == "delete":
            store.delete_object(Bucket=BUCKET, Key=name)
        elif what == "list":
            pages = store.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=name)
            answer = [one["Key"] for page in pages for one in page.get("Contents", [])]
        elif what == "get":
            answer = store.get_object(Bucket=BUCKET, Key=name)["Body"].read().decode()
        elif what == "uploads":
            answer = [one["Key"] for one in store.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]
        print(json.dumps(answer), file=answers, flush=True)
    server.stop()


if __name__ == "__main__":
    main()
