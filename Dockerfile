# The program for a debug pod or a firstboot unit: one static binary.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build VERSION="$(git describe --tags --always 2>/dev/null || echo devel)"

FROM scratch
COPY --from=build /src/bin/oneboot /usr/bin/oneboot
ENTRYPOINT ["/usr/bin/oneboot"]
