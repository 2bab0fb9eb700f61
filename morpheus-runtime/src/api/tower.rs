// The module's docs are in a file of their own, because their examples need axum, tonic and hyper. The crate
// `examples` has these: it compiles the docs, and its `tests/tower.rs` tests the layer with each.
#![cfg_attr(not(doctest), doc = include_str!("tower.md"))]

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, Method, Request, Uri, header};
use tower_layer::Layer;
use tower_service::Service;

use crate::api::watch::Watched;
use crate::report::label::{self, Label, Origin};
use crate::report::names::{self, Names};

/// The label of requests without a route, such as those of a scanner.
const NO_ROUTE: &str = "(no route)";

/// A request without its body, from which its route is determined.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    fn of<B>(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The request's method.
    #[must_use]
    pub fn method(self) -> &'a Method {
        self.method
    }

    /// The request's target.
    #[must_use]
    pub fn uri(self) -> &'a Uri {
        self.uri
    }

    /// The request's headers.
    #[must_use]
    pub fn headers(self) -> &'a HeaderMap {
        self.headers
    }

    /// Values that other layers have attached to the request, such as axum's `MatchedPath`.
    #[must_use]
    pub fn extensions(self) -> &'a Extensions {
        self.extensions
    }

    fn is_grpc(self) -> bool {
        let content_type = self.headers.get(header::CONTENT_TYPE);
        content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    }

    /// The label of a request without a known route, from its path.
    fn path_label(self, names: &Names) -> &'static Label {
        let path = self.uri.path();
        if self.is_grpc() {
            return names.label(format_args!("{path}"));
        }
        // `*` and the empty path of CONNECT have no segments.
        let first = path.strip_prefix('/').map_or(path, |path| {
            path.split_once('/').map_or(path, |(first, _)| first)
        });
        let slash = if path.starts_with('/') { "/" } else { "" };
        names.label(format_args!("{} {slash}{first}", self.method))
    }
}

fn no_route() -> &'static Label {
    static LABEL: OnceLock<&Label> = OnceLock::new();
    LABEL.get_or_init(|| label::of(Origin::Named(NO_ROUTE)))
}

type Route = dyn for<'a> Fn(Head<'a>) -> Option<&'a str> + Send + Sync;

/// A layer that watches the responses of a service while they are computed; see the [module](self).
#[derive(Clone, Default)]
pub struct WatchLayer {
    /// Returns the route of a request; without this function the first segment of its path is used.
    route: Option<Arc<Route>>,
}

impl WatchLayer {
    /// Labels by the method and the first segment of the path, or by a gRPC method.
    #[must_use]
    pub fn new() -> WatchLayer {
        WatchLayer::default()
    }

    /// Labels by the method and the route that `route` returns. Where it returns `None`, the label is `(no
    /// route)`, so that paths that the program does not serve get no labels.
    ///
    /// The routes should be the program's own. Routes that a client chooses would use up the [limited
    /// number](self) of labels.
    #[must_use]
    pub fn by_route<F>(route: F) -> WatchLayer
    where
        F: for<'a> Fn(Head<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        WatchLayer {
            route: Some(Arc::new(route)),
        }
    }

    fn label(&self, head: Head<'_>) -> &'static Label {
        let Some(route) = &self.route else {
            return head.path_label(&names::PATHS);
        };
        match route(head) {
            Some(route) => names::GIVEN.label(format_args!("{} {route}", head.method)),
            None => no_route(),
        }
    }
}

impl fmt::Debug for WatchLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.route.is_some() {
            "route"
        } else {
            "path"
        };
        f.debug_struct("WatchLayer").field("by", &by).finish()
    }
}

impl<S> Layer<S> for WatchLayer {
    type Service = WatchService<S>;

    fn layer(&self, inner: S) -> WatchService<S> {
        WatchService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service whose responses are watched while they are computed; made by [`WatchLayer`].
#[derive(Clone, Debug)]
pub struct WatchService<S> {
    inner: S,
    layer: WatchLayer,
}

impl<S, B> Service<Request<B>> for WatchService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Watched<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Watched<S::Future> {
        let label = self.layer.label(Head::of(&request));
        Watched::labelled(self.inner.call(request), label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str) -> Request<()> {
        let request = Request::builder().method(method).uri(uri);
        request.body(()).expect("a valid request")
    }

    fn label_of(layer: &WatchLayer, request: &Request<()>) -> String {
        layer.label(Head::of(request)).origin().to_string()
    }

    /// Another test uses up the process's own names.
    fn room() -> Names {
        Names::new(100, "(rest)")
    }

    #[test]
    fn the_label_of_a_path_is_its_method_and_first_segment() {
        let names = room();
        for (method, uri, label) in [
            ("GET", "/users/7/posts?page=2", "GET /users"),
            ("POST", "/users", "POST /users"),
            ("GET", "http://host.example/users/", "GET /users"),
            ("GET", "/", "GET /"),
            ("GET", "//x", "GET /"),
            ("OPTIONS", "*", "OPTIONS *"),
            ("CONNECT", "host.example:80", "CONNECT "),
        ] {
            let request = request(method, uri);
            let found = Head::of(&request).path_label(&names).origin();
            assert_eq!(found.to_string(), label, "{uri}");
        }
    }

    #[test]
    fn the_label_of_a_grpc_request_is_its_path() {
        let mut grpc = request("POST", "/grpc.health.v1.Health/Check");
        let content_type = "application/grpc+proto".parse().unwrap();
        grpc.headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        let found = Head::of(&grpc).path_label(&room()).origin();
        assert_eq!(found.to_string(), "/grpc.health.v1.Health/Check");
    }

    #[test]
    fn a_request_has_its_route_as_label_and_all_others_share_one() {
        #[derive(Clone)]
        struct Matched(&'static str);
        let layer = WatchLayer::by_route(|head| Some(head.extensions().get::<Matched>()?.0));
        let mut matched = request("DELETE", "/users/7");
        matched.extensions_mut().insert(Matched("/users/{id}"));
        assert_eq!(label_of(&layer, &matched), "DELETE /users/{id}");
        assert_eq!(label_of(&layer, &request("GET", "/.env")), NO_ROUTE);
        assert_eq!(label_of(&layer, &request("GET", "/admin")), NO_ROUTE);
    }

    #[test]
    fn a_million_paths_do_not_make_a_million_labels() {
        let layer = WatchLayer::new();
        let before = label::all().count();
        let mut shared = 0;
        for number in 0..1_000_000 {
            let request = request("GET", &format!("/{number:x}/"));
            let label = layer.label(Head::of(&request));
            shared += usize::from(label.origin().to_string().starts_with("(more paths"));
        }
        let made = label::all().count() - before;
        // Other tests create labels at the same time.
        assert!((1..400).contains(&made), "{made}");
        assert!(shared >= 999_000, "{shared}");
        // Hostile methods create no further labels either.
        for number in 0..1000 {
            layer.label(Head::of(&request(&format!("M{number}"), "/")));
        }
        assert!(label::all().count() - before < 400);
    }
}
