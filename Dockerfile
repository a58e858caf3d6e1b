# The program alone, for the firstboot unit and for debug pods. `make image` makes
# the same image where no container engine can run.
#   podman build --platform linux/amd64,linux/arm64 --manifest oneboot .
#   podman build --platform linux/amd64,linux/arm64 --manifest oneboot-cluster --target oneboot-cluster .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN GOARCH=$TARGETARCH make build build-cluster VERSION="$(git describe --tags --always 2>/dev/null || echo devel)"

# What manifests/node runs on every node.
FROM scratch AS oneboot-cluster
COPY --from=build /src/bin/oneboot-cluster /usr/bin/oneboot-cluster
ENTRYPOINT ["/usr/bin/oneboot-cluster"]

FROM scratch
COPY --from=build /src/bin/oneboot /usr/bin/oneboot
ENTRYPOINT ["/usr/bin/oneboot"]
